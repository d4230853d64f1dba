"""The plots of the report; text and grid take the colours of the page, so that both of its themes are readable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go

from ..report.table import signed
from ..train.metrics import METRICS, Metric
from .results import Result
from .stats import CONFIDENCE, Analysis, Comparison
from .wording import difference_unit, digits

__all__ = ["empty_figure", "gains_plot", "learning_curves", "look", "scatter_plot"]

BASELINE_COLOUR = "#80868f"
COLOURS = ("#2f7fd6", "#e0662f", "#2a9d6f", "#a45fcf", "#c4941a", "#d6477f", "#1f9fb5", "#9a7350")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star")
"""Together with eight colours, so that no rule is told by its colour alone."""
HEIGHT = 400
MOST_TICKS = 12
VISIBLE_SHARE = 0.75
"""Of a learning curve: the first quarter would press the rest together."""


def scatter_plot(analysis: Analysis) -> go.Figure:
    """The metric against the throughput of training, mean ± standard deviation."""
    figure = empty_figure(_axis(METRICS["samples_per_second"]), _axis(analysis.metric))
    decimals = digits(analysis.metric)
    for summary in analysis.discretizations:
        speed, value = summary.numbers.get("samples_per_second"), summary.numbers.get(analysis.metric.name)
        if speed is None or value is None:
            continue
        colour, symbol = _look(analysis, summary.discretization)
        figure.add_scatter(
            x=[speed.mean],
            y=[value.mean],
            error_x=_bars(speed.std),
            error_y=_bars(value.std),
            mode="markers+text",
            marker={"color": colour, "symbol": symbol, "size": 11},
            text=[escape(summary.discretization)],
            textposition="top right",
            cliponaxis=False,
            name=escape(summary.discretization),
            hovertemplate=f"{value.mean:.{decimals}f} {analysis.metric.unit}, {speed.mean:.0f} images/s",
        )
    figure.update_layout(showlegend=False)
    return figure


def gains_plot(analysis: Analysis) -> go.Figure:
    """A dot a seed: the difference to the baseline with the same seed; beside them the mean and its interval."""
    plan, metric = analysis.plan, analysis.metric
    unit = difference_unit(metric)
    figure = empty_figure("", f"gain over {escape(plan.baseline)}{f' ({unit})' if unit else ''}")
    compared = [comparison for comparison in analysis.comparisons if comparison.gain]
    for place, comparison in enumerate(compared):
        figure.add_traces(list(_gain_traces(analysis, comparison, place)))
    names = [escape(comparison.discretization) for comparison in compared]
    figure.update_xaxes(
        tickvals=list(range(len(names))), ticktext=names, range=[-0.6, len(names) - 0.4], showgrid=False
    )
    figure.add_hrect(y0=-plan.threshold, y1=plan.threshold, fillcolor=BASELINE_COLOUR, opacity=0.14, line_width=0)
    figure.add_hline(y=0, line={"color": BASELINE_COLOUR, "width": 1.5})
    figure.add_hline(
        y=plan.threshold,
        line={"color": BASELINE_COLOUR, "width": 1.5, "dash": "dash"},
        annotation_text=f"threshold {plan.threshold:g}",
        annotation_position="top left",
    )
    figure.update_layout(showlegend=False)
    return figure


def _gain_traces(analysis: Analysis, comparison: Comparison, place: int) -> Iterator[go.Scatter]:
    gain, decimals = comparison.gain, digits(analysis.metric)
    assert gain is not None
    colour, symbol = _look(analysis, comparison.discretization)
    yield go.Scatter(
        x=place + np.linspace(-0.12, 0.24, comparison.pairs) if comparison.pairs > 1 else [place],
        y=comparison.gains,
        mode="markers",
        marker={"color": colour, "symbol": symbol, "size": 8, "opacity": 0.65},
        name=escape(comparison.discretization),
        customdata=comparison.seeds,
        hovertemplate=f"seed %{{customdata}}: %{{y:+.{decimals}f}}",
    )
    if gain.low is not None and gain.high is not None:
        bars = {"type": "data", "array": [gain.high - gain.mean], "arrayminus": [gain.mean - gain.low], "width": 5}
        yield go.Scatter(
            x=[place - 0.28],
            y=[gain.mean],
            error_y={**bars, "thickness": 2},
            mode="markers",
            marker={"color": colour, "symbol": "line-ew", "size": 12, "line": {"color": colour, "width": 3}},
            name=escape(comparison.discretization),
            hovertemplate=f"mean {signed(gain.mean, decimals)}, {CONFIDENCE:.0%} interval "
            f"{signed(gain.low, decimals)} to {signed(gain.high, decimals)}",
        )


def learning_curves(analysis: Analysis) -> go.Figure:
    """The metric after each epoch: the mean over the seeds, and a band of one standard deviation."""
    metric = analysis.metric
    figure = empty_figure("epoch", _axis(metric))
    visible: list[float] = []
    for summary in analysis.discretizations:
        runs = [r for r in analysis.study.results if r.discretization == summary.discretization and r.status == "done"]
        epochs, means, stds = _curve(runs, metric.name)
        if not epochs:
            continue
        colour, _ = _look(analysis, summary.discretization)
        name = escape(summary.discretization)
        above = [mean + std for mean, std in zip(means, stds, strict=True)]
        below = [mean - std for mean, std in zip(means, stds, strict=True)]
        first = int(len(epochs) * (1 - VISIBLE_SHARE))
        visible += above[first:] + below[first:]
        figure.add_scatter(
            x=epochs + epochs[::-1],
            y=above + below[::-1],
            mode="lines",
            fill="toself",
            fillcolor=_transparent(colour, 0.15),
            line={"width": 0},
            hoverinfo="skip",
            legendgroup=name,
            showlegend=False,
        )
        figure.add_scatter(
            x=epochs,
            y=means,
            mode="lines" if len(epochs) > 1 else "markers",
            line={"color": colour, "width": 2},
            name=name,
            legendgroup=name,
            hovertemplate=f"epoch %{{x}}: %{{y:.{digits(metric)}f}}",
        )
        if 2 <= epochs[-1] <= MOST_TICKS:
            figure.update_xaxes(dtick=1)
    if visible and max(visible) > min(visible):
        air = 0.08 * (max(visible) - min(visible))
        figure.update_yaxes(range=[min(visible) - air, max(visible) + air])
    return figure


def _curve(runs: Sequence[Result], metric: str) -> tuple[list[float], list[float], list[float]]:
    """Epochs, means and standard deviations, where the metric was measured."""
    values: dict[float, list[float]] = {}
    for run in runs:
        for record in run.curve:
            if record.get(metric) is not None and np.isfinite(record[metric]):
                values.setdefault(record["epoch"], []).append(record[metric])
    epochs = sorted(values)
    means = [float(np.mean(values[epoch])) for epoch in epochs]
    stds = [float(np.std(values[epoch], ddof=1)) if len(values[epoch]) > 1 else 0.0 for epoch in epochs]
    return epochs, means, stds


# --- looks ------------------------------------------------------------------------------------------------------------


def empty_figure(x: str, y: str) -> go.Figure:
    """Two axes with these titles."""
    figure = go.Figure()
    figure.update_layout(
        template="none",
        height=HEIGHT,
        margin={"l": 60, "r": 16, "t": 12, "b": 48 if x else 28},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 13},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.01, "x": 0},
        dragmode=False,  # a finger that scrolls the page must not zoom
    )
    figure.update_xaxes(title={"text": x}, zeroline=False, automargin=True)
    figure.update_yaxes(title={"text": y}, zeroline=False, automargin=True)
    return figure


def _axis(metric: Metric) -> str:
    return f"{metric.title} ({metric.unit})" if metric.unit else metric.title


def _look(analysis: Analysis, discretization: str) -> tuple[str, str]:
    return look(discretization, analysis.plan.methods, analysis.plan.baseline)


def look(discretization: str, discretizations: Sequence[str], baseline: str) -> tuple[str, str]:
    """Colour and symbol of one among several; the baseline is grey."""
    if discretization == baseline:
        return BASELINE_COLOUR, SYMBOLS[0]
    place = [name for name in discretizations if name != baseline].index(discretization)
    return COLOURS[place % len(COLOURS)], SYMBOLS[(place + place // len(COLOURS)) % len(SYMBOLS)]


def _bars(std: float | None) -> dict[str, Any]:
    return {"type": "data", "array": [std], "visible": std is not None, "thickness": 1.5, "width": 4}


def _transparent(colour: str, opacity: float) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"
