"""Pictures of the benchmarks of models: throughput and cost by batch size, time and memory by resolution."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from ..discretize import DISCRETIZATIONS
from ..report.plot_style import Look
from ..report.speed import BASELINE, Candidate, Speed
from .resolution import Growth, crossing

_PEER: dict[str, Any] = {"color": "0.45", "linestyle": (0, (4, 1.6)), "linewidth": 1.4, "marker": "s", "markersize": 4}


def draw_inference(speed: Speed) -> Figure:
    verb = "training steps" if speed.training else "inference"
    figure, left, right = _two_parts(f"{speed.result.options.model}: {verb}")
    _throughput(left, speed)
    _relative(right, speed)
    return figure


def _throughput(ax: Axes, speed: Speed) -> None:
    for candidate in speed.candidates:
        if candidate.again or candidate.backend == "reference":
            continue
        cases = [speed.case(candidate, batch) for batch in speed.batch_sizes]
        rates = {case.batch: case.batch / timing.median for case in cases if (timing := speed.timing(case))}
        ax.plot([*rates], [*rates.values()], label=candidate.name, **_style(candidate))
    ax.set_xscale("log", base=2)
    ax.set_xticks(speed.batch_sizes, [str(batch) for batch in speed.batch_sizes])
    ax.set(xlabel="batch size", ylabel="images/s", title="Throughput")
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False, ncols=2, fontsize=8.5, loc="lower right")


def _relative(ax: Axes, speed: Speed) -> None:
    """Rules side by side at every batch size; the grey band is what the baseline seems to differ from itself by."""
    ax.axhline(1, color="0.35", linewidth=1)
    for place, batch in enumerate(speed.batch_sizes):
        if math.isfinite(noise := speed.noise(batch)):
            label = f"noise: {BASELINE} against itself" if not place else None
            sides = [place - 0.42, place + 0.42]
            ax.fill_between(sides, max(0.0, 1 - noise), 1 + noise, label=label, color="0.85", linewidth=0, zorder=0)
    rules = [rule for rule in speed.result.options.discretizations if rule != BASELINE]
    for number, rule in enumerate(rules):
        found = [speed.to_baseline(speed.of_discretization(rule, batch)) for batch in speed.batch_sizes]
        shift = 0.64 * ((number + 0.5) / len(rules) - 0.5)
        ratios = {place + shift: ratio for place, ratio in enumerate(found) if ratio}
        middles, intervals = (
            [ratio.median for ratio in ratios.values()],
            [ratio.interval() for ratio in ratios.values()],
        )
        look = {name: value for name, value in _style(Candidate("", rule)).items() if not name.startswith("line")}
        if all(math.isfinite(high) for _, high in intervals):
            down = [middle - low for middle, (low, _) in zip(middles, intervals, strict=True)]
            up = [high - middle for middle, (_, high) in zip(middles, intervals, strict=True)]
            ax.errorbar([*ratios], middles, [down, up], fmt="none", ecolor=look["color"], capsize=2)
        ax.plot([*ratios], middles, linestyle="none", label=rule, **look)
    ax.set_xticks(range(len(speed.batch_sizes)), [str(batch) for batch in speed.batch_sizes])
    ax.set(xlabel="batch size", ylabel=f"time : {BASELINE}'s", title=f"Cost relative to {BASELINE}, 95 % intervals")
    ax.margins(y=0.25)
    if ax.get_legend_handles_labels()[1]:
        ax.legend(frameon=False, ncols=3, fontsize=8.5)


def draw_resolution(growth: Growth) -> Figure:
    figure, left, right = _two_parts(f"{growth.ours} ({growth.discretization}) and {growth.peer}")
    for ax, (ours, peer), scale, unit, title in (
        (left, growth.seconds, 1e3, "ms", "Time of one image"),
        (right, growth.peaks, 2**-20, "MiB", "Memory without weights"),
    ):
        style = _style(Candidate(growth.ours, growth.discretization)) | {"linewidth": 1.7}
        ax.plot([*ours], [scale * value for value in ours.values()], label=f"ViM, {growth.discretization}", **style)
        ax.plot([*peer], [scale * value for value in peer.values()], label=growth.peer.split("_patch")[0], **_PEER)
        if (found := crossing(ours, peer)) and found[0]:
            ax.axvspan(*found, color="#009E73", alpha=0.1, linewidth=0, label="where they cross")
        ax.set(xscale="log", yscale="log", xlabel="side of the image (px)", ylabel=unit, title=title)
        ax.set_xticks(growth.sizes, [str(size) for size in growth.sizes])
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter("{x:g}")
        ax.minorticks_off()
        ax.legend(frameon=False)
    return figure


def _two_parts(title: str) -> tuple[Figure, Axes, Axes]:
    figure = Figure(figsize=(11.2, 4.4), layout="constrained")
    figure.suptitle(title, x=0.008, ha="left", fontsize=12, weight="bold")
    left, right = figure.subplots(1, 2)
    return figure, left, right


def _style(candidate: Candidate) -> dict[str, Any]:
    if candidate.discretization is None:
        return {**_PEER, "marker": "x" if candidate.compiled else "s"}
    look = Look.number(list(DISCRETIZATIONS).index(candidate.discretization))
    line = "dotted" if candidate.compiled else "solid"
    return {"color": look.colour, "marker": look.marker, "markersize": 4.5, "linewidth": 1.5, "linestyle": line}
