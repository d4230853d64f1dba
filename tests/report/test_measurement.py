"""A result survives its file, and a file that holds anything else is refused."""

import csv
import io
import json
import math
from dataclasses import replace

import pytest

from tests.bench import results
from tests.bench.models import made_up, made_up_resolution
from tustin.bench.outcome import Outcome
from tustin.bench.scan_tables import outcome as scan_outcome
from tustin.report.formats import as_csv, json_text
from tustin.report.measurement import Result


@pytest.mark.parametrize("result", [made_up(), made_up(training=True), made_up_resolution(), results.made_up()])
def test_every_result_survives_its_file(result, tmp_path):
    skipped = next(iter(result.timings))
    result = replace(result, skipped={skipped: "too slow"})
    path = tmp_path / "result.json"
    path.write_text(json_text(result.facts()), encoding="utf-8")
    assert Result.read(path, result.benchmark) == result


def test_a_file_says_more_than_the_result_and_is_read_all_the_same():
    outcome: Outcome = scan_outcome(results.made_up())
    facts = json.loads(json_text(outcome.facts()))
    assert {"limits", "rates", "checks", "tables"} <= facts.keys()
    assert Result.from_facts(facts) == outcome.result


@pytest.mark.parametrize("facts", [{}, [], {"options": 3}, {"options": {"model": 1}}, {"cases": [{"kind": "new"}]}])
def test_what_is_no_result_is_refused(facts):
    with pytest.raises(ValueError, match="its content is not that of a result"):
        Result.from_facts(facts)


@pytest.mark.parametrize("seconds", [math.inf, 0.0, -1.0, "many"])
def test_seconds_that_cannot_be_are_refused(seconds):
    facts = json.loads(json_text(made_up().facts()))
    facts["cases"][0]["seconds"]["laps"][0][3] = seconds
    with pytest.raises(ValueError, match="its content is not that of a result"):
        Result.from_facts(facts)


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        (("rounds",), math.inf, "rounds must be a whole number from 1 to"),
        (("machine", "load"), "none", r"machine\.load must be a number at least 0"),
        (("machine", "cpu", "cores"), 0, r"machine\.cores must be a whole number from 1 to"),
        (("options", "batch_sizes"), ["x"], r"options\.batch_sizes must be a list, each a whole number from 1 to"),
        (("options", "modle"), "x", r"unknown argument 'options\.modle'"),
        (("cases", 0, "candidate", "model"), None, r"candidate\.model must be text, got None"),
        (("cases", 0, "batch"), 1e999, "batch must be a whole number from 1 to"),
        (("cases", 0, "seconds", "laps", 0, 3), 10**400, "its content is not that of a result$"),
    ],
)
def test_values_that_cannot_be_are_refused_by_name(place, value, sentence):
    facts = inside = json.loads(json_text(made_up().facts()))
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = value
    with pytest.raises(ValueError, match=sentence) as refusal:
        Result.from_facts(facts)
    assert "Error" not in str(refusal.value)


def test_the_result_of_another_benchmark_is_named(tmp_path):
    path = tmp_path / "result.json"
    path.write_text(json_text(made_up().facts()), encoding="utf-8")
    with pytest.raises(
        ValueError, match=r"result\.json is not a result of 'tustin bench scan': it is a result of 'tustin bench"
    ):
        Result.read(path, "scan")


def test_the_csv_has_a_line_for_each_case_and_the_reason_of_those_left_out():
    result = results.without(results.made_up(), "too slow", lambda cell: cell.backend != "reference")
    lines = list(csv.DictReader(io.StringIO(as_csv(result.table()))))
    assert len(lines) == len(result.timings) + len(result.skipped)
    bil = next(line for line in lines if line["discretization"] == "bil" and line["backend"] == "native")
    assert float(bil["median"]) > float(bil["low"]) > 0
    assert {line["skipped_because"] for line in lines if line["backend"] == "reference"} == {"too slow"}
