"""A table for the terminal and as Markdown, LaTeX, HTML, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from . import terminal
from .table import Table, Value, strict

__all__ = ["as_csv", "as_facts", "as_html", "as_latex", "as_markdown", "as_rich", "escape_latex", "escape_markdown"]
__all__ += ["json_text", "table_of"]

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
    "∞": r"$\infty$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "“": "``",
    "”": "''",
}
_MARKDOWN = {character: f"\\{character}" for character in "\\`*_[]<>|#"}


# --- Markdown ---------------------------------------------------------------------------------------------------------


def as_markdown(table: Table, level: int = 2) -> str:
    """A section with the table and its note; `level` is that of its heading, 0 leaves it out."""
    alignment = ["---" if table.is_text(column) else "---:" for column in range(len(table.header))]
    lines = [f"{'#' * level} {escape_markdown(table.title)}", ""] if level else []
    lines += [_markdown_row(map(escape_markdown, table.header)), _markdown_row(alignment)]
    lines += [_markdown_row(map(escape_markdown, row)) for row in table.texts()]
    if table.note:
        lines += ["", escape_markdown(table.note)]
    return "\n".join(lines) + "\n"


def escape_markdown(text: str) -> str:
    """Plain text that stays plain: no markup, no HTML, on one line."""
    return "".join(_MARKDOWN.get(character, character) for character in " ".join(text.split()))


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


# --- LaTeX ------------------------------------------------------------------------------------------------------------


def as_latex(table: Table) -> str:
    """A floating table; it needs the package booktabs."""
    columns = "".join("l" if table.is_text(column) else "r" for column in range(len(table.header)))
    return "\n".join(
        [
            r"\begin{table}",
            r"  \centering",
            rf"  \caption{{{escape_latex(_caption(table))}}}",
            rf"  \label{{tab:{table.name}}}",
            rf"  \begin{{tabular}}{{{columns}}}",
            r"    \toprule",
            f"    {_latex_row(table.header)}",
            r"    \midrule",
            *(f"    {_latex_row(row)}" for row in table.texts()),
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _caption(table: Table) -> str:
    """Title and note as sentences."""
    title = table.title if table.title.endswith(tuple(".?!")) else f"{table.title}."
    return f"{title} {table.note}".rstrip()


def escape_latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _latex_row(cells: Iterable[str]) -> str:
    return rf"{' & '.join(map(escape_latex, cells))} \\"


# --- terminal ---------------------------------------------------------------------------------------------------------


def as_rich(table: Table) -> list[Any]:
    """Title, table and note for a console."""
    from rich.text import Text

    words = {*table.words, *(table.header[:1] if table.long_names else ())}
    drawn = terminal.table(table.header, words)
    for row in table.texts():
        drawn.add_row(*map(Text, row))
    return [Text(table.title, style="bold"), drawn, *([Text(table.note, style="dim")] if table.note else [])]


# --- HTML -------------------------------------------------------------------------------------------------------------


def as_html(table: Table, marked: Mapping[str, str] | None = None) -> Markup:
    """A region that scrolls by itself; a cell with a text in `marked` gets that class."""
    marked = marked or {}
    columns = range(len(table.header))
    classes = [Markup(' class="text"') if table.is_text(column) else Markup() for column in columns]
    head = Markup().join(
        Markup('<th scope="col"{}>{}</th>').format(classes[column], table.header[column]) for column in columns
    )

    def cell(column: int, text: str) -> Markup:
        if column == 0:
            return Markup('<th scope="row">{}</th>').format(text)
        if text in marked:
            return Markup('<td class="text"><span class="verdict {}">{}</span></td>').format(marked[text], text)
        return Markup("<td{}>{}</td>").format(classes[column], text)

    body = Markup("\n").join(
        Markup("<tr>{}</tr>").format(Markup().join(cell(column, text) for column, text in enumerate(row)))
        for row in table.texts()
    )
    note = Markup('\n<p class="note">{}</p>').format(table.note) if table.note else Markup()
    return Markup(
        '<div class="scroll" tabindex="0" role="region" aria-label="{}">\n<table id="{}">\n'
        "<thead><tr>{}</tr></thead>\n<tbody>\n{}\n</tbody>\n</table>\n</div>\n"
        '<p class="hint" aria-hidden="true">more columns →</p>{}'
    ).format(table.title, table.name, head, body, note)


# --- files for programs -----------------------------------------------------------------------------------------------


def table_of(name: str, rows: Sequence[Mapping[str, Value]], first: Sequence[str] = ()) -> Table:
    """Every column that a row has; what is not known is None."""
    columns = tuple(dict.fromkeys([*first, *(column for row in rows for column in row)]))
    return Table(name, name, columns, [tuple(row.get(column) for column in columns) for row in rows])


def as_csv(table: Table) -> str:
    """A line for each row; what is not known is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_csv_cell, table.header))
    writer.writerows(map(_csv_cell, row) for row in table.rows)
    return text.getvalue()


def _csv_cell(value: Value) -> Value:
    """Text on one line, with an apostrophe where a spreadsheet would take it for a formula and compute it."""
    if not isinstance(value, str):
        return value  # Python writes infinity as "inf"
    text = " ".join(value.split())
    return f"'{text}" if text.startswith(tuple("=+-@")) else text


def as_facts(table: Table) -> dict[str, Any]:
    """The table for JSON: its rows by the names of the columns."""
    rows = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    return {"name": table.name, "title": table.title, "rows": strict(rows), "note": table.note}


_NUMBERS = re.compile(r'\[\n\s*([^"{}\[\]]*?)\s*\]')
"""A list without texts, objects or lists inside, in indented JSON; a text cannot contain the end of a line."""


def json_text(facts: object) -> str:
    """Strict JSON, with a list of numbers on one line.

    A number that is not finite is the text "inf", "-inf" or "nan", which `float` reads back.
    """
    text = json.dumps(strict(facts), indent=2, ensure_ascii=False, allow_nan=False)
    return _NUMBERS.sub(lambda numbers: f"[{' '.join(numbers[1].split())}]", text) + "\n"
