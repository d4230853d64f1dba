"""A result in every form in which it is shown or written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..report.formats import as_facts, as_latex, as_markdown, as_rich, escape_markdown
from ..report.measurement import Case, Result
from ..report.table import Table
from .checks import Check

if TYPE_CHECKING:  # matplotlib takes a second
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Outcome:
    """A result, and what there is to say about it."""

    result: Result
    summary: str
    tables: Sequence[Table]
    """As on a page, the conclusions first."""
    left_out: Sequence[str]
    findings: Mapping[str, Any] = field(default_factory=dict)
    """What follows from the result, as plain data."""
    checks: Sequence[Check] = ()
    of_case: Callable[[Case], dict[str, Any]] = lambda case: {}
    """The same of one case."""
    remarks: Sequence[str] = ()
    backwards: bool = False
    """Whether a terminal, which is read from its bottom, has the tables in the opposite order."""
    draw: Callable[[], Figure] | None = field(default=None, compare=False)

    def facts(self) -> dict[str, Any]:
        """As plain data: the result, which can be read back, and what follows from it."""
        facts = self.result.facts()
        for entry, case in zip(facts["cases"], self.result.timings, strict=True):
            entry |= self.of_case(case)
        checks = [check.facts() for check in self.checks]
        return facts | dict(self.findings) | {"checks": checks, "tables": [as_facts(table) for table in self.tables]}

    def for_terminal(self) -> list[Any]:
        """Text and tables for a console of rich."""
        parts: list[Any] = [self.summary, ""]
        for table in reversed(self.tables) if self.backwards else self.tables:
            parts += [*as_rich(table), ""]
        if self.left_out:
            parts += ["Not measured", *(f"- {line}" for line in self.left_out), ""]
        return [*parts, *self.remarks]

    def as_markdown(self, picture: str | None, level: int) -> str:
        """Summary, conclusions, picture and tables."""
        parts = [f"Measured by `{self.result.command}`. {escape_markdown(self.summary)}\n"]
        parts += [f"{escape_markdown(' '.join(self.remarks))}\n"] if self.remarks else []
        parts += [f"![{self.result.benchmark}]({picture})\n"] if picture else []
        parts += [as_markdown(table, level) for table in self.tables]
        if self.left_out:
            lines = [f"- {escape_markdown(line)}" for line in self.left_out]
            parts.append("\n".join([f"{'#' * level} Not measured\n", *lines]) + "\n")
        return "\n".join(parts)

    def as_latex(self) -> str:
        """The tables, ready to be included."""
        comment = f"% {self.result.command}; \\usepackage{{booktabs}} in the preamble.\n"
        return "\n".join([comment, *(as_latex(table) for table in self.tables if table.name != "checks")])


def left_out(result: Result) -> list[str]:
    """What was not measured and why: one line each."""
    return [f"{case}: {reason}" for case, reason in result.skipped.items()]
