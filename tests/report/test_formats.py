"""One table in every form, and infinity written the same way in all files."""

import csv
import io
import json
import math

import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from tustin.report.formats import as_csv, as_facts, as_html, as_latex, as_markdown, as_rich, json_text, table_of
from tustin.report.table import Table, flat, number, shown, signed, strict

HOSTILE = '<b>&"|`*_ [bold]x[/bold] $1% {\\}'
TABLE = Table(
    "small",
    "A title",
    ("name", "value", "verdict"),
    [("one", 1.5, "yes"), ("two", math.inf, "no"), ("three", -math.inf, HOSTILE), ("four", None, "=1+1")],
    "A note.",
    frozenset({"verdict"}),
)


def test_text_shows_infinity_and_what_is_missing():
    assert [row[1] for row in TABLE.texts()] == ["1.5", "∞", "−∞", "–"]
    assert shown(0) == "0"


def test_files_for_programs_say_inf_and_python_reads_it_back():
    lines = list(csv.DictReader(io.StringIO(as_csv(TABLE))))
    assert [line["value"] for line in lines] == ["1.5", "inf", "-inf", ""]
    facts = json.loads(json_text(as_facts(TABLE)))
    assert [row["value"] for row in facts["rows"]] == [1.5, "inf", "-inf", None]
    assert float(facts["rows"][2]["value"]) == -math.inf
    assert strict({"a": (math.nan, 1)}) == {"a": ["nan", 1]}


def test_a_spreadsheet_computes_nothing():
    assert list(csv.DictReader(io.StringIO(as_csv(TABLE))))[3]["verdict"] == "'=1+1"


def test_columns_are_all_that_a_row_has():
    assert table_of("t", [{"a": 1}, {"b": 2}], ["c"]).header == ("c", "a", "b")
    assert as_csv(table_of("t", [{"a": 1}, {"b": 2}])) == "a,b\n1,\n,2\n"


def test_markdown_stays_plain_text():
    tokens = MarkdownIt("commonmark").enable("table").parse(as_markdown(TABLE, 3))
    kinds = {child.type for token in tokens for child in token.children or []}
    assert kinds <= {"text", "text_special"}
    assert as_markdown(TABLE, 3).startswith("### A title\n\n| name | value | verdict |\n| --- | ---: | --- |\n")


def test_html_escapes_and_marks():
    html = as_html(TABLE, {"yes": "above"})
    assert '<span class="verdict above">yes</span>' in html
    assert "<b>" not in html
    assert html.count("<tr>") == 5
    assert '<p class="note">A note.</p>' in html


def test_latex_escapes_and_knows_infinity():
    text = as_latex(TABLE)
    assert text.isascii()
    assert r"$\infty$" in text
    assert r"\label{tab:small}" in text


def test_the_terminal_takes_cells_as_they_are():
    console = Console(width=120, file=io.StringIO())
    console.print(*as_rich(TABLE), sep="\n")
    assert "[bold]x[/bold]" in console.file.getvalue()


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0523, "0.052"), (3.041, "3.04"), (12.34, "12.3"), (99.97, "100"), (494.4, "494"), (20891.0, "20891")],
)
def test_three_digits_and_no_exponent(value, text):
    assert number(value) == text


def test_a_true_minus_sign_and_none_for_zero():
    assert [signed(value, 1) for value in (1.25, -1.25, -0.01)] == ["+1.2", "−1.2", "0.0"]


def test_nested_values_have_dotted_names():
    assert flat({"a": {"b": 1, "c": {"d": 2}}, "e": 3}) == {"a.b": 1, "a.c.d": 2, "e": 3}


def test_json_has_a_list_of_numbers_on_one_line() -> None:
    facts = {
        "laps": [[0, 1, 2.5e-6], [1, None, -3]],
        "texts": ["[\n 1,\n 2 ]", "a"],
        "empty": [],
        "objects": [{"a": [1]}],
    }
    text = json_text(facts)
    assert json.loads(text) == facts
    assert "    [0, 1, 2.5e-06],\n    [1, null, -3]\n" in text
    assert '"a": [1]' in text
