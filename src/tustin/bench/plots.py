"""Pictures of the benchmarks of models: throughput and cost by batch size, time and memory by resolution."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from ..discretize import DISCRETIZATIONS
from ..report.plot_style import Look
from ..report.speed import BASELINE, Candidate, Speed
from .resolution import Growth, crossing

_PEER: dict[str, Any] = {"color": "0.45", "linestyle": (0, (4, 1.6)), "linewidth": 1.4, "marker": "s", "markersize": 4}
_SIZE = (11.2, 4.4)


def draw_inference(speed: Speed) -> Figure:
    figure = Figure(figsize=_SIZE, layout="constrained")
    left, right = figure.subplots(1, 2)
    _throughput(left, speed)
    _relative(right, speed)
    verb = "training steps" if speed.training else "inference"
    figure.suptitle(f"{speed.result.options.model}: {verb}", x=0.008, ha="left", fontsize=12, weight="bold")
    return figure


def _throughput(ax: Axes, speed: Speed) -> None:
    for candidate in speed.candidates:
        if candidate.again or candidate.backend == "reference":
            continue
        cases = [speed.case(candidate, batch) for batch in speed.batch_sizes]
        known = [case for case in cases if speed.timing(case)]
        rates = [case.batch / speed.result.timings[case].median for case in known]
        ax.plot([case.batch for case in known], rates, label=candidate.name, **_style(candidate))
    ax.set_xscale("log", base=2)
    ax.set_xticks(speed.batch_sizes, [str(batch) for batch in speed.batch_sizes])
    ax.set(xlabel="batch size", ylabel="images/s", title="Throughput")
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False, ncols=2, fontsize=8.5, loc="lower right")


def _relative(ax: Axes, speed: Speed) -> None:
    """Rules side by side at every batch size; the grey band is what the baseline seems to differ from itself by."""
    rules = [
        Candidate(speed.result.options.model, discretization)
        for discretization in speed.result.options.discretizations
        if discretization != BASELINE
    ]
    ax.axhline(1, color="0.35", linewidth=1)
    for place, batch in enumerate(speed.batch_sizes):
        noise = speed.noise(batch)
        if math.isfinite(noise):
            low, high = max(0.0, 1 - noise), 1 + noise
            band: dict[str, Any] = {"color": "0.85", "linewidth": 0, "zorder": 0}
            label = f"noise: {BASELINE} against itself" if not place else None
            ax.fill_between([place - 0.42, place + 0.42], low, high, label=label, **band)
    for number, rule in enumerate(rules):
        places, ratios = [], []
        for place, batch in enumerate(speed.batch_sizes):
            ratio = speed.to_baseline(speed.case(rule, batch))
            if ratio:
                places.append(place + 0.64 * ((number + 0.5) / len(rules) - 0.5))
                ratios.append(ratio)
        middles, intervals = [ratio.median for ratio in ratios], [ratio.interval() for ratio in ratios]
        style = {key: value for key, value in _style(rule).items() if key in ("color", "marker", "markersize")}
        if all(math.isfinite(high) for _, high in intervals):
            ax.errorbar(places, middles, _distances(middles, intervals), fmt="none", ecolor=style["color"], capsize=2)
        ax.plot(places, middles, linestyle="none", label=rule.name, **style)
    ax.set_xticks(range(len(speed.batch_sizes)), [str(batch) for batch in speed.batch_sizes])
    ax.set(xlabel="batch size", ylabel=f"time : {BASELINE}'s", title=f"Cost relative to {BASELINE}, 95 % intervals")
    ax.margins(y=0.25)
    if ax.get_legend_handles_labels()[1]:
        ax.legend(frameon=False, ncols=3, fontsize=8.5)


def _distances(middles: Sequence[float], intervals: Sequence[tuple[float, float]]) -> list[list[float]]:
    """From the middles down and up, as errorbar wants them."""
    pairs = list(zip(middles, intervals, strict=True))
    return [[middle - low for middle, (low, _) in pairs], [high - middle for middle, (_, high) in pairs]]


def _style(candidate: Candidate) -> dict[str, Any]:
    if candidate.discretization is None:
        return {**_PEER, "marker": "x" if candidate.compiled else "s"}
    look = Look.number(list(DISCRETIZATIONS).index(candidate.discretization))
    line = "dotted" if candidate.compiled else "solid"
    return {"color": look.colour, "marker": look.marker, "markersize": 4.5, "linewidth": 1.5, "linestyle": line}


def draw_resolution(growth: Growth) -> Figure:
    figure = Figure(figsize=_SIZE, layout="constrained")
    left, right = figure.subplots(1, 2)
    _growth(left, growth, growth.seconds(growth.ours), growth.seconds(growth.peer), 1e3, "ms", "Time of one image")
    _growth(
        right, growth, growth.peaks(growth.ours), growth.peaks(growth.peer), 2**-20, "MiB", "Memory without weights"
    )
    names = f"{growth.ours.model} ({growth.discretization}) and {growth.peer.model}"
    figure.suptitle(names, x=0.008, ha="left", fontsize=12, weight="bold")
    return figure


def _growth(
    ax: Axes,
    growth: Growth,
    ours: Mapping[int, float],
    peer: Mapping[int, float],
    scale: float,
    unit: str,
    title: str,
) -> None:
    look = Look.number(list(DISCRETIZATIONS).index(growth.discretization))
    style: dict[str, Any] = {"color": look.colour, "marker": look.marker, "markersize": 4.5, "linewidth": 1.7}
    ax.plot(list(ours), [scale * value for value in ours.values()], label=f"ViM, {growth.discretization}", **style)
    ax.plot(list(peer), [scale * value for value in peer.values()], label=growth.peer.model.split("_patch")[0], **_PEER)
    if (found := crossing(ours, peer)) and found[0]:
        ax.axvspan(*found, color="#009E73", alpha=0.1, linewidth=0, label="where they cross")
    ax.set(xscale="log", yscale="log", xlabel="side of the image (px)", ylabel=unit, title=title)
    ax.set_xticks(growth.sizes, [str(size) for size in growth.sizes])
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.minorticks_off()
    ax.legend(frameon=False)
