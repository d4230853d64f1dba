"""How fast the models infer, if `tustin bench inference` has put its result into the folder of the study."""

from __future__ import annotations

import math
from html import escape
from pathlib import Path

import plotly.graph_objects as go

from ..report.measurement import Result
from ..report.speed import BASELINE, Candidate, Speed
from .plots import BASELINE_COLOUR, empty_figure, look

__all__ = ["cost_plot", "read_speed", "throughput_plot"]

FILE = "inference.json"


def read_speed(folder: str | Path) -> Speed | None:
    """The result in the folder, if there is one; ValueError if it cannot be read."""
    path = Path(folder) / FILE
    if not path.exists():
        return None
    speed = Speed(Result.read(path, "inference"))
    if missing := [batch for batch in speed.batch_sizes if not speed.timing(speed.of_discretization(BASELINE, batch))]:
        raise ValueError(
            f"{path} is not a result of 'tustin bench inference': no {BASELINE} at batch size {missing[0]}"
        )
    return speed


def throughput_plot(speed: Speed) -> go.Figure:
    """Images per second by batch size, of the rules and their peers."""
    figure = empty_figure("batch size", "throughput (images/s)")
    for candidate in speed.candidates:
        if candidate.again or candidate.backend == "reference":
            continue
        cases = [speed.case(candidate, batch) for batch in speed.batch_sizes]
        rates = {case.batch: case.batch / timing.median for case in cases if (timing := speed.timing(case))}
        colour, symbol = _look(speed, candidate)
        figure.add_scatter(
            x=[str(batch) for batch in rates],
            y=list(rates.values()),
            mode="lines+markers",
            line={"color": colour, "width": 2, "dash": "solid" if candidate.discretization else "dash"},
            marker={"symbol": symbol, "size": 8},
            name=escape(candidate.name),
            hovertemplate="%{y:.1f} images/s at batch size %{x}",
        )
    figure.update_xaxes(type="category")
    figure.update_yaxes(rangemode="tozero")
    return figure


def cost_plot(speed: Speed) -> go.Figure:
    """Time of each rule relative to the baseline's, with intervals."""
    figure = empty_figure("batch size", f"time : {escape(BASELINE)}'s")
    rules = [discretization for discretization in speed.result.options.discretizations if discretization != BASELINE]
    for number, discretization in enumerate(rules):
        found = {
            batch: speed.to_baseline(speed.of_discretization(discretization, batch)) for batch in speed.batch_sizes
        }
        ratios = {place: ratio for place, ratio in enumerate(found.values()) if ratio}
        middles = [ratio.median for ratio in ratios.values()]
        bounds = [ratio.interval() for ratio in ratios.values()]
        colour, symbol = _look(speed, Candidate(speed.result.options.model, discretization))
        figure.add_scatter(
            x=[place + 0.6 * ((number + 0.5) / len(rules) - 0.5) for place in ratios],
            y=middles,
            error_y={
                "type": "data",
                "array": [high - middle for middle, (_, high) in zip(middles, bounds, strict=True)],
                "arrayminus": [middle - low for middle, (low, _) in zip(middles, bounds, strict=True)],
                "visible": all(math.isfinite(high) for _, high in bounds),
                "thickness": 1.5,
                "width": 4,
            },
            mode="markers",
            marker={"color": colour, "symbol": symbol, "size": 9},
            name=escape(discretization),
            hovertemplate="%{y:.3f}",
        )
    figure.add_hline(y=1, line={"color": BASELINE_COLOUR, "width": 1.5})
    batches = [str(batch) for batch in speed.batch_sizes]
    figure.update_xaxes(tickvals=list(range(len(batches))), ticktext=batches, showgrid=False)
    return figure


def _look(speed: Speed, candidate: Candidate) -> tuple[str, str]:
    if candidate.discretization is None:
        return BASELINE_COLOUR, "x"
    return look(candidate.discretization, speed.result.options.discretizations, BASELINE)
