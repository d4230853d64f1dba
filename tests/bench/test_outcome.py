"""A result in all its forms: each holds the summary, the tables and what was not measured."""

from dataclasses import replace
from typing import Any

from rich.table import Table as RichTable

from tests.bench.results import OPTIONS, made_up
from tustin.bench.outcome import Outcome, left_out
from tustin.report.measurement import Result
from tustin.report.table import Table

TABLES = [
    Table("checks", "Claims", ("claim", "holds"), [("a < b", "yes")], ""),
    Table("ms", "Times", ("", "ms"), [("zoh", "1.2")], ""),
]


def outcome(**more: Any) -> Outcome:
    result = made_up(replace(OPTIONS, discretizations=("zoh",), lengths=(64,), batch_sizes=(1,)))
    case = next(iter(result.timings))
    result = replace(result, skipped={case: "too slow"})
    return Outcome(result, "Two <cores>.", TABLES, left_out(result), {"verdict": 1}, **more)


def test_as_data_it_can_be_read_back() -> None:
    told = outcome(of_case=lambda case: {"ratio": 2.0})
    facts = told.facts()
    assert facts["verdict"] == 1
    assert [table["name"] for table in facts["tables"]] == ["checks", "ms"]
    assert all(case["ratio"] == 2.0 for case in facts["cases"])
    assert Result.from_facts(facts) == told.result


def test_in_a_terminal_the_conclusions_are_at_the_bottom_if_wanted() -> None:
    for backwards, titles in ((False, ["Claims", "Times"]), (True, ["Times", "Claims"])):
        parts = outcome(backwards=backwards, remarks=("Mind the gap.",)).for_terminal()
        text = [str(part) for part in parts if not isinstance(part, RichTable)]
        assert [line for line in text if line in titles] == titles
        assert text[0] == "Two <cores>."
        assert text[-1] == "Mind the gap."
        assert sum(line.endswith(": too slow") for line in text) == 1


def test_as_markdown_and_latex() -> None:
    text = outcome().as_markdown("ms.png", 2)
    order = ["Measured by `", "![scan](ms.png)", "## Claims", "## Times", "## Not measured", ": too slow"]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    latex = outcome().as_latex()
    assert "zoh" in latex
    assert "a < b" not in latex  # checks are not for a paper
