"""The report as one HTML file that needs nothing else: styles, plots and the code that draws them are inside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import plotly.graph_objects as go
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from .. import __version__
from ..report import speed_tables
from ..report.formats import as_html
from ..report.speed import Speed
from ..report.table import Table
from . import plots, speed, tables
from .stats import Analysis, Verdict
from .subject import about
from .times import times_table
from .wording import headline, limits, title

__all__ = ["render"]

TEMPLATES = Path(__file__).parent / "templates"
BUTTONS = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "zoom2d", "pan2d", "autoScale2d"],
}
"""Of the bar that appears beside a plot under a pointer; where there is none, the style hides it."""


@dataclass(frozen=True)
class Plot:
    """A figure and the words around it."""

    title: str
    html: Markup
    caption: str


@dataclass(frozen=True)
class Section:
    """Tables and plots about one thing."""

    title: str
    text: str
    tables: list[Table]
    plots: list[Plot]


def render(analysis: Analysis, measured_speed: Speed | None = None) -> str:
    """The page; whatever comes from outside is escaped by the template."""
    plan = analysis.plan
    measured = (tables.significance_table(analysis) if analysis.comparisons else None), times_table(analysis)
    paper, failures = tables.paper_table(analysis), tables.failures_table(analysis)
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html").render(
        title=title(analysis),
        about=about(analysis),
        headline=headline(analysis),
        limits=limits(analysis),
        tables=[tables.results_table(analysis), *(table for table in measured if table)],
        plots=list(_plots(analysis)),
        later=[table for table in (failures, paper) if table],
        sections=[_speed(measured_speed)] if measured_speed else [],
        details=[
            tables.settings_table("configuration", "Configuration", {**_judged_by(analysis), **plan.config}),
            tables.settings_table("environment", "Environment", plan.environment),
            tables.runs_table(analysis),
        ],
        draw=partial(as_html, marked={str(verdict): verdict.name.lower() for verdict in Verdict}),
        version=__version__,
        css=Markup((TEMPLATES / "report.css").read_text(encoding="utf-8")),
        plotly=Markup(get_plotlyjs()),
    )


def _judged_by(analysis: Analysis) -> dict[str, object]:
    """The plan's own settings, which are not those of a run."""
    plan = analysis.plan
    names = (
        "recipe",
        "discretizations",
        "seeds",
        "control",
        "baseline",
        "metric",
        "level",
        "threshold",
        "threads",
        "settings",
    )
    return {f"study.{name}": getattr(plan, name) for name in names}


def _plots(analysis: Analysis) -> Iterator[Plot]:
    metric, plan = analysis.metric, analysis.plan
    measured = [summary for summary in analysis.discretizations if metric.name in summary.numbers]
    if any(comparison.gain for comparison in analysis.comparisons):
        yield Plot(
            "Pair by pair",
            _html(plots.gains_plot(analysis), "gains"),
            "Each dot is a seed: the difference from the baseline with the same seed. Left of the dots are their mean "
            "and its interval. Differences inside the grey band are smaller than the threshold.",
        )
    if measured:
        yield Plot(
            f"{metric.title[0].upper()}{metric.title[1:]} and training time",
            _html(plots.scatter_plot(analysis), "scatter"),
            "Vertical: mean over the seeds ± one standard deviation. Horizontal: training time, as the median of the "
            f"ratios to {plan.baseline} with the same seed, with its interval.",
        )
    if any(result.curve for result in analysis.study.results if result.status == "done"):
        yield Plot(
            "Learning curves",
            _html(plots.learning_curves(analysis), "curves"),
            "Means over the seeds; the bands show ± one standard deviation. A steep beginning may be out of view; "
            "double-click to see everything.",
        )


def _speed(measured: Speed) -> Section:
    return Section(
        "Speed of inference",
        f"Measured by {measured.result.command}. {speed_tables.summary(measured)}",
        speed_tables.conclusions(measured),
        [
            Plot(
                "Throughput", _html(speed.throughput_plot(measured), "throughput"), "From the median time of all calls."
            ),
            Plot(
                "Cost",
                _html(speed.cost_plot(measured), "cost"),
                "Medians of the ratios within a round, and their intervals.",
            ),
        ],
    )


def _html(figure: go.Figure, name: str) -> Markup:
    return Markup(figure.to_html(full_html=False, include_plotlyjs=False, div_id=f"plot-{name}", config=BUTTONS))
