"""The plots of the report; text and grid take the colours of the page, so that both of its themes are readable."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go

from ..report.table import signed
from ..report.timing import Ratio
from ..train.metrics import Metric
from .stats import CONFIDENCE, Analysis, Comparison
from .times import CLOCKS, costs, decided_by_cpu
from .wording import difference_unit, digits

__all__ = [
    "axis_title",
    "curve",
    "empty_figure",
    "gain_range",
    "gains_plot",
    "learning_curves",
    "look",
    "scatter_plot",
]

BASELINE_COLOUR = "#80868f"
COLOURS = ("#2f7fd6", "#e0662f", "#2a9d6f", "#a45fcf", "#c4941a", "#d6477f", "#1f9fb5", "#9a7350")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star")
"""Together with eight colours, so that no rule is told by its colour alone."""
HEIGHT = 400
MOST_TICKS = 12
MOST_STRETCH = 1.75
"""Of the axis of the gains, for a threshold outside of them: with more, the dots lie on each other."""
VISIBLE_SHARE = 0.75
"""Of a learning curve: the first quarter would press the rest together."""


def scatter_plot(analysis: Analysis) -> go.Figure:
    """The metric, mean ± standard deviation, against the time of training relative to the baseline's."""
    clock = "cpu" if decided_by_cpu(analysis) else "wall"
    title = f"{CLOCKS[clock]} of training : {escape(analysis.plan.baseline)}"
    figure = empty_figure(title, axis_title(analysis.metric))
    decimals = digits(analysis.metric)
    for summary, cost in zip(analysis.discretizations, costs(analysis), strict=True):
        value, ratio = summary.numbers.get(analysis.metric.name), getattr(cost, clock).ratio
        if summary.discretization == analysis.plan.baseline:
            ratio = Ratio((1.0,))
        if ratio is None or value is None:
            continue
        low, high = ratio.interval()
        colour, symbol = _look(analysis, summary.discretization)
        figure.add_scatter(
            x=[ratio.median],
            y=[value.mean],
            error_x={
                **_bars(high - ratio.median if math.isfinite(high) else None),
                "arrayminus": [ratio.median - low],
            },
            error_y=_bars(value.std),
            mode="markers+text",
            marker={"color": colour, "symbol": symbol, "size": 11},
            text=[escape(summary.discretization)],
            textposition="top right",
            cliponaxis=False,
            name=escape(summary.discretization),
            hovertemplate=f"{value.mean:.{decimals}f} {analysis.metric.unit}, time {ratio.text(2)}",
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
    low, high = gain_range(compared, plan.threshold)
    figure.update_yaxes(range=[low, high])
    _mark_threshold(figure, plan.threshold, high)
    figure.update_layout(showlegend=False)
    return figure


def gain_range(compared: Sequence[Comparison], threshold: float) -> tuple[float, float]:
    """Of the axis: all dots, intervals and zero, and the threshold unless it would press them together."""
    ends = [end for c in compared if c.gain for end in (c.gain.low, c.gain.high) if end is not None]
    values = [0.0, *(gain for comparison in compared for gain in comparison.gains), *ends]
    low, high = min(values), max(values)
    if threshold - low <= MOST_STRETCH * (high - low) or high == low:
        high = max(high, threshold)
    air = 0.08 * ((high - low) or 1.0)
    return low - air, high + air


def _mark_threshold(figure: go.Figure, threshold: float, top: float) -> None:
    """As a line, or where it is out of view at the edge of the plot."""
    text = f"threshold {threshold:g}"
    if threshold <= top:
        line = {"color": BASELINE_COLOUR, "width": 1.5, "dash": "dash"}
        figure.add_hline(y=threshold, line=line, annotation_text=text, annotation_position="top left")
    else:
        figure.add_annotation(
            text=f"▲ {text}, above this axis",
            **{"xref": "paper", "yref": "paper", "x": 0, "y": 1, "xanchor": "left", "yanchor": "top"},
            showarrow=False,
        )


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
    """The metric after each epoch or evaluation: the mean over the seeds, and a band of one standard deviation."""
    metric, counted = analysis.metric, analysis.plan.length()[0]
    figure = empty_figure(counted, axis_title(metric))
    visible: list[float] = []
    for summary in analysis.discretizations:
        places, means, stds = curve(analysis, summary.discretization)
        if not places:
            continue
        colour, _ = _look(analysis, summary.discretization)
        name = escape(summary.discretization)
        above = [mean + std for mean, std in zip(means, stds, strict=True)]
        below = [mean - std for mean, std in zip(means, stds, strict=True)]
        first = int(len(places) * (1 - VISIBLE_SHARE))
        visible += above[first:] + below[first:]
        figure.add_scatter(
            x=places + places[::-1],
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
            x=places,
            y=means,
            mode="lines" if len(places) > MOST_TICKS else "lines+markers",
            marker={"size": 5},
            line={"color": colour, "width": 2},
            name=name,
            legendgroup=name,
            hovertemplate=f"{counted.removesuffix('s')} %{{x}}: %{{y:.{digits(metric)}f}}",
        )
        if 2 <= places[-1] <= MOST_TICKS:
            figure.update_xaxes(dtick=1)
    if visible and max(visible) > min(visible):
        air = 0.08 * (max(visible) - min(visible))
        figure.update_yaxes(range=[min(visible) - air, max(visible) + air])
    return figure


def curve(analysis: Analysis, discretization: str) -> tuple[list[float], list[float], list[float]]:
    """Epochs or updates, means and standard deviations over the seeds, where the metric was measured."""
    metric, counted = analysis.metric.name, analysis.plan.length()[0]
    runs = [r for r in analysis.study.results if r.discretization == discretization and r.status == "done"]
    values: dict[float, list[float]] = {}
    for run in runs:
        for record in run.curve:
            if record.get(metric) is not None and np.isfinite(record[metric]):
                values.setdefault(record[counted], []).append(record[metric])
    places = sorted(values)
    means = [float(np.mean(values[place])) for place in places]
    stds = [float(np.std(values[place], ddof=1)) if len(values[place]) > 1 else 0.0 for place in places]
    return places, means, stds


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


def axis_title(metric: Metric) -> str:
    """The metric and its unit."""
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
