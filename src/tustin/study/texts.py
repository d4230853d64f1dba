"""A table as Markdown, LaTeX or for the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .tables import Table

__all__ = ["as_latex", "as_markdown", "as_rich", "escape_latex"]

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"$<$",
    ">": r"$>$",
    "±": r"$\pm$",
    "−": r"$-$",
    "–": "--",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "“": "``",
    "”": "''",
}
ROOMY = 100
"""Width of a terminal on which the columns of a table can stand apart, and verdicts on one line."""
_MARKDOWN = {character: f"\\{character}" for character in "\\`*_[]<>|#"}


def as_markdown(table: Table, level: int = 2) -> str:
    """A section with the table and its note; `level` is that of its heading."""
    alignment = ["---" if table.is_text(column) else "---:" for column in range(len(table.header))]
    lines = [
        f"{'#' * level} {escape_markdown(table.title)}",
        "",
        _markdown_row(map(escape_markdown, table.header)),
        _markdown_row(alignment),
    ]
    lines += [_markdown_row(map(escape_markdown, row)) for row in table.rows]
    if table.note:
        lines += ["", escape_markdown(table.note)]
    return "\n".join(lines) + "\n"


def escape_markdown(text: str) -> str:
    """Plain text that stays plain: no markup, no HTML, on one line."""
    return "".join(_MARKDOWN.get(character, character) for character in " ".join(text.split()))


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def as_latex(table: Table) -> str:
    """A floating table; it needs the package booktabs."""
    columns = "".join("l" if table.is_text(column) else "r" for column in range(len(table.header)))
    rows = [_latex_row(row) for row in table.rows]
    return "\n".join(
        [
            r"\begin{table}",
            r"  \centering",
            rf"  \caption{{{escape_latex(table.title)}. {escape_latex(table.note)}}}",
            rf"  \label{{tab:{table.name}}}",
            rf"  \begin{{tabular}}{{{columns}}}",
            r"    \toprule",
            f"    {_latex_row(table.header)}",
            r"    \midrule",
            *(f"    {row}" for row in rows),
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def escape_latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _latex_row(cells: Iterable[str]) -> str:
    return rf"{' & '.join(map(escape_latex, cells))} \\"


def as_rich(table: Table, width: int) -> list[Any]:
    """Title, table and note for a console of this width."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    narrow = width < ROOMY
    gap = 0 if narrow else 1
    drawn = RichTable(box=box.SIMPLE_HEAD, padding=(0, gap, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    for column, name in enumerate(table.header):
        drawn.add_column(
            Text(name),
            justify="left" if table.is_text(column) else "right",
            overflow="fold",
            width=_longest_word(table, column) if narrow and name == "verdict" else None,
            no_wrap=column == 0,
        )
    for row in table.rows:
        drawn.add_row(*map(Text, row))
    return [Text(table.title, style="bold"), drawn, Text(table.note, style="dim")]


def _longest_word(table: Table, column: int) -> int:
    return max((len(word) for row in table.rows for word in row[column].split()), default=0)
