"""The report of a study: a page for the browser, and the same tables for papers, spreadsheets and programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..report import terminal
from ..report.block import Block
from ..report.formats import as_csv, as_latex, as_markdown, as_rich, escape_markdown, json_text, table_of
from ..support.files import remove_unfinished, write_text
from .results import Result, Study, read_study
from .stats import Analysis, analyse, numbers_of
from .subject import about
from .tables import failures_table, paper_table, results_table, short_table, significance_table
from .times import costs, times_table
from .wording import headline, limits, missing_runs, title

if TYPE_CHECKING:
    from rich.console import Console

    from ..report.table import Table

__all__ = ["SHORT", "in_short", "print_tables", "publish", "published", "write_into", "write_report"]

SHORT = "short"
"""The part of a study that `in_short` writes."""


def write_report(folder: str | Path) -> list[Path]:
    """Analyse the study in `folder` and write the report beside it, the page first."""
    analysis = analyse(read_study(folder))
    texts = {"report.html": _html(analysis, folder)} | {name: render(analysis) for name, render in _FILES.items()}
    remove_unfinished(folder)
    for name, text in texts.items():
        write_text(Path(folder) / name, text)
    return [Path(folder) / name for name in texts]


def write_into(page: Path, folder: Path, text: str, part: str = "") -> None:
    """Put `text` between the marks of a study, or of a part of it, in a page that people write."""
    _block(folder, part).replace(page, text)


def publish(page: Path, folder: Path, study: Study) -> None:
    """Write what the page has marks for: the whole text, the short one, or both."""
    with_short = _block(folder, SHORT).is_in(page)
    if with_short:
        write_into(page, folder, in_short(study), SHORT)
    if not with_short or _block(folder).is_in(page):
        write_into(page, folder, published(study))


def _block(folder: Path, part: str = "") -> Block:
    return Block(f"{folder.resolve().name} {part}".rstrip(), "study")


def in_short(study: Study) -> str:
    """The text for pages with little room: the headline, and one table of means, gains and verdicts."""
    analysis = analyse(study)
    text = escape_markdown(" ".join([*headline(analysis), *missing_runs(analysis)]))
    return f"{text}\n\n{as_markdown(short_table(analysis), level=0)}"


def published(study: Study) -> str:
    """The text for pages: the headline, what cannot be concluded, results and verdicts."""
    analysis = analyse(study)
    parts = [escape_markdown(" ".join(headline(analysis))) + "\n"]
    parts += ["\n".join(f"- {escape_markdown(s)}" for s in limits(analysis)) + "\n"] if limits(analysis) else []
    tables = [results_table(analysis), *([significance_table(analysis)] if analysis.comparisons else [])]
    return "\n".join([*parts, *(as_markdown(table, level=4) for table in tables)])


def print_tables(console: Console, analysis: Analysis) -> None:
    """Results, verdicts, and what can and cannot be concluded."""
    from rich.text import Text

    console.print(Text(title(analysis), style="bold"), terminal.pairs(about(analysis).items()), "", sep="\n")
    for table in _tables(analysis):
        if table.name != "paper":  # which is too wide for most terminals
            console.print(*as_rich(table), "", sep="\n")
    console.print(Text(" ".join(headline(analysis))))
    for sentence in limits(analysis):
        console.print(Text(f"- {sentence}"))


def _tables(analysis: Analysis) -> list[Table]:
    makers = results_table, significance_table, times_table, failures_table, paper_table
    return [table for make in makers if (table := make(analysis)) and table.rows]


def _html(analysis: Analysis, folder: str | Path) -> str:
    from .page import render
    from .speed import read_speed

    return render(analysis, read_speed(folder))


def _markdown(analysis: Analysis) -> str:
    parts = [f"# {escape_markdown(title(analysis))}\n", escape_markdown(" ".join(headline(analysis))) + "\n"]
    parts.append("\n".join(f"- {name}: {escape_markdown(text)}" for name, text in about(analysis).items()) + "\n")
    if sentences := limits(analysis):
        parts.append(
            "\n".join(["## What cannot be concluded\n", *(f"- {escape_markdown(s)}" for s in sentences)]) + "\n"
        )
    return "\n".join([*parts, *(as_markdown(table) for table in _tables(analysis))])


def _latex(analysis: Analysis) -> str:
    facts = [f"{name}: {text}" for name, text in about(analysis).items()]
    lines = ["Written by Tustin; \\usepackage{booktabs} in the preamble.", title(analysis), *facts]
    comment = "".join(f"% {' '.join(line.split())}\n" for line in lines)
    return "\n".join([comment, *(as_latex(table) for table in _tables(analysis) if table.name != "failures")])


def _json(analysis: Analysis) -> str:
    facts = {
        "tustin": __version__,
        "title": title(analysis),
        "about": about(analysis),
        "headline": headline(analysis),
        "limits": limits(analysis),
        "metric": asdict(analysis.metric),
        "plan": asdict(analysis.plan),
        "discretizations": [asdict(summary) for summary in analysis.discretizations],
        "control": asdict(analysis.control) | {"too_little": analysis.control.too_little} if analysis.control else None,
        "comparisons": [asdict(comparison) for comparison in analysis.comparisons],
        "times": [cost.facts() for cost in costs(analysis)],
        "runs": [_without_curve(result) for result in analysis.study.results],
        "missing": analysis.study.missing,
    }
    return json_text(facts)


def _without_curve(result: Result) -> dict[str, Any]:
    return {name: value for name, value in asdict(result).items() if name != "curve"}


def _runs_csv(analysis: Analysis) -> str:
    """A line for each run that has ended."""
    rows: list[dict[str, Any]] = [
        {"discretization": run.discretization, "seed": run.seed, "status": run.status}
        | (numbers_of(run) if run.status == "done" else {"error": run.error})
        for run in analysis.study.results
    ]
    return as_csv(table_of("runs", rows, ["discretization", "seed", "status"]))


def _discretizations_csv(analysis: Analysis) -> str:
    """A line for each rule, with its comparisons; mean, standard deviation and interval of every number."""
    compared = {comparison.discretization: comparison for comparison in analysis.comparisons}
    times = {cost.discretization: cost for cost in costs(analysis)}
    rows = []
    for summary in analysis.discretizations:
        row: dict[str, Any] = {
            "discretization": summary.discretization,
            "planned": summary.planned,
            "done": summary.done,
        }
        row |= {"failed": summary.failed, "missing": summary.missing}
        for name, spread in summary.numbers.items():
            row |= {f"{name}_{part}": value for part, value in asdict(spread).items() if part != "n"}
        if comparison := compared.get(summary.discretization):
            row["pairs"] = comparison.pairs
            if comparison.gain:
                row |= {f"gain_{part}": value for part, value in asdict(comparison.gain).items() if part != "n"}
            row |= {name: getattr(comparison, name) for name in _TESTED}
        cost = times[summary.discretization]
        for clock, ratio in (("cpu", cost.cpu.ratio), ("wall", cost.wall.ratio)):
            row |= {f"{clock}_ratio_{part}": value for part, value in ratio.facts().items()} if ratio else {}
        row["time"] = str(cost.verdict)
        rows.append(row)
    return as_csv(table_of("discretizations", rows, ["discretization"]))


_TESTED = ("p", "p_holm", "p_loss", "p_loss_holm", "p_equal", "p_equal_holm", "cohens_d", "detectable", "verdict")


_FILES: dict[str, Callable[[Analysis], str]] = {
    "report.md": _markdown,
    "report.json": _json,
    "report.tex": _latex,
    "runs.csv": _runs_csv,
    "discretizations.csv": _discretizations_csv,
}
