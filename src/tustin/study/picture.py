"""The picture of a study for a page or a paper: the paired differences, and the learning curves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..report.plot_style import Look, save_figure
from .plots import axis_title, curve, gain_range
from .stats import CONFIDENCE, Analysis
from .wording import difference_unit, title

__all__ = ["draw_study"]

_GREY = "0.5"


def draw_study(path: Path, analysis: Analysis) -> None:
    """Into the file at `path`; its ending chooses the format."""

    def draw() -> Figure:
        figure = Figure(figsize=(10.4, 4.6), layout="constrained")
        gains, curves = figure.subplots(1, 2)
        _gains(gains, analysis)
        _curves(curves, analysis)
        figure.suptitle(title(analysis), x=0.008, ha="left", fontsize=11, weight="bold")
        return figure

    save_figure(path, draw)


def _look(analysis: Analysis, discretization: str) -> Look:
    """The baseline is grey, and a control dotted."""
    plan = analysis.plan
    if discretization == plan.baseline:
        return Look(_GREY, (), "o")
    if discretization == plan.control:
        return Look(_GREY, (1, 1.5), "s")
    return Look.number([name for name in plan.discretizations if name != plan.baseline].index(discretization))


def _gains(axes: Axes, analysis: Analysis) -> None:
    """A dot a seed; beside them the mean and its interval, and the band of the threshold behind all."""
    plan = analysis.plan
    compared = [comparison for comparison in analysis.comparisons if comparison.gain]
    axes.axhspan(-plan.threshold, plan.threshold, color="0.92", zorder=0)
    axes.axhline(0, color=_GREY, linewidth=1)
    for place, comparison in enumerate(compared):
        look, gain = _look(analysis, comparison.discretization), comparison.gain
        assert gain is not None
        spread = np.linspace(-0.1, 0.25, comparison.pairs) if comparison.pairs > 1 else [0.0]
        dots: dict[str, Any] = {"color": look.colour, "marker": look.marker, "markersize": 4.5, "alpha": 0.7}
        axes.plot([place + x for x in spread], comparison.gains, linestyle="none", markeredgewidth=0, **dots)
        if gain.low is not None and gain.high is not None:
            ends = [[gain.mean - gain.low], [gain.high - gain.mean]]
            axes.errorbar(place - 0.27, gain.mean, ends, color=look.colour, fmt="_", capsize=3, markersize=9)
    axes.set_xticks(range(len(compared)), [c.discretization for c in compared], rotation=30, ha="right")
    axes.set_xlim(-0.6, max(len(compared), 1) - 0.4)
    axes.set_ylim(gain_range(compared, plan.threshold))
    unit = difference_unit(analysis.metric)
    axes.set_ylabel(f"gain over {plan.baseline}{f' ({unit})' if unit else ''}")
    axes.set_title(f"One dot per seed; mean with {CONFIDENCE:.0%} interval; band ±{plan.threshold:g}")


def _curves(axes: Axes, analysis: Analysis) -> None:
    """The mean over the seeds."""
    for summary in analysis.discretizations:
        places, means, _ = curve(analysis, summary.discretization)
        axes.plot(places, means, label=summary.discretization, **_look(analysis, summary.discretization).points())
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel=analysis.plan.length()[0], ylabel=axis_title(analysis.metric))
    axes.set_title("On held-out images during training, means")
    axes.legend(frameon=False, fontsize=8, ncols=2)
