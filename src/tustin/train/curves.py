"""The picture of a run: the training loss with each of its parts, and what was measured on held-out images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from ..report.plot_style import Look, save_figure
from .metrics import METRICS
from .tally import part_names

__all__ = ["draw_curves"]

_SIZE = (10.4, 5.0)
_LEGEND: dict[str, Any] = {"frameon": False, "fontsize": 8, "loc": "upper center", "bbox_to_anchor": (0.5, -0.13)}
"""Below the axes, where no curve is."""
_PERCENT = [name for name, metric in METRICS.items() if metric.unit == "%"]


def draw_curves(path: Path, records: Sequence[Mapping[str, Any]], title: str) -> None:
    """Into the file at `path`, over the updates."""

    def draw() -> Figure:
        figure = Figure(figsize=_SIZE, layout="constrained")
        losses, metrics = figure.subplots(1, 2)
        _losses(losses, records)
        _metrics(metrics, records)
        figure.suptitle(title, x=0.008, ha="left", fontsize=11, weight="bold")
        return figure

    save_figure(path, draw)


def _losses(axes: Axes, records: Sequence[Mapping[str, Any]]) -> None:
    """Parts on a scale of powers, because they differ in size by far."""
    parts = dict.fromkeys(name for record in records for name in part_names(record))
    told = {"train_loss": "total" if parts else "training loss", **part_names(parts)}
    for number, (name, label) in enumerate(told.items()):
        width = 2.2 if name == "train_loss" else 1.3
        _line(axes, records, name, label, Look.number(number), width)
    axes.set(xlabel="updates", ylabel="loss", title="Training loss")
    if parts:
        axes.set_yscale("symlog", linthresh=1e-3)
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.legend(**_LEGEND, ncols=3)


def _metrics(axes: Axes, records: Sequence[Mapping[str, Any]]) -> None:
    measured = [name for name in _PERCENT if any(name in record for record in records)]
    for number, name in enumerate(measured):
        _line(axes, records, name, METRICS[name].title, Look.number(number), 1.7)
    axes.set(xlabel="updates", ylabel="%", title="Held-out images")
    axes.set_ylim(bottom=0)
    if measured:
        axes.legend(**_LEGEND, ncols=2)


def _line(axes: Axes, records: Sequence[Mapping[str, Any]], name: str, label: str, look: Look, width: float) -> None:
    points = [(record["updates"], record[name]) for record in records if name in record]
    style = {**look.points(), "linewidth": width}
    axes.plot([at for at, _ in points], [value for _, value in points], label=label, **style)
