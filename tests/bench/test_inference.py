"""`tustin bench inference` and `train`: every candidate, complete tables, checks of the worst rule."""

import json
from dataclasses import replace

import pytest

from tests.bench.models import NANO, OPTIONS, made_up, seconds_of, speed
from tustin.bench import inference, training_tables
from tustin.bench.inference import checks
from tustin.report.measurement import Result


def rows(table):
    return {row[0]: row[1:] for row in table.rows}


def test_the_plan_has_every_rule_the_noise_and_the_peers():
    names = [candidate.name for candidate in inference.candidates(OPTIONS)]
    assert names == [
        *OPTIONS.discretizations,
        "zoh again",
        "zoh, reference backend",
        "deit_tiny_patch16_224",
    ]
    cases = inference.cases(OPTIONS)
    assert {case.batch for case in cases if case.candidate.backend == "reference"} == {1, 4}
    compiled = inference.candidates(replace(OPTIONS, compile=True))
    assert [c.name for c in compiled if c.compiled] == [
        "zoh, torch.compile",
        "deit_tiny_patch16_224, torch.compile",
    ]
    training = inference.candidates(OPTIONS, training=True)
    assert [c.name for c in training] == [*OPTIONS.discretizations, "zoh again", "deit_tiny_patch16_224"]
    assert "deit" not in inference.candidates(replace(OPTIONS, model=NANO))[-1].model


def test_the_grid_has_all_candidates_and_batch_sizes():
    tables = {table.name: table for table in inference.tables(speed())}
    assert list(tables) == ["fastest", "scenarios", "relative", "latency", "throughput", "memory", "checks"]
    throughput = rows(tables["throughput"])
    assert len(throughput) == 9
    assert all(len(cells) == 5 for cells in throughput.values())
    assert throughput["zoh, reference backend"][2:] == ("–", "–", "–")
    relative = rows(tables["relative"])
    assert relative["zoh"] == ("1",) * 5
    assert relative["deit_tiny_patch16_224"][0].startswith("0.60")
    assert "zoh again" in relative
    assert "zoh again" not in rows(tables["memory"])


def test_checks_are_about_the_worst_rule():
    found = checks(speed())
    assert found[0].claim == "batch 1, throughput : zoh's, worst rule"
    assert {(check.which, check.holds, check.bound) for check in found} == {("foh", True, 0.97)}
    slow = speed(cost=lambda case, n: seconds_of(case, n) * (1.1 if case.candidate.discretization == "rk4" else 1))
    assert {(check.which, check.holds) for check in checks(slow)} == {("rk4", False)}


def test_training_is_held_to_its_own_bounds_beside_the_papers_costs():
    result = speed(replace(OPTIONS, batch_sizes=(8,)), training=True)
    steps, verdicts = training_tables.tables(result, checks(result))
    found = rows(steps)
    assert found["bil"][-1] == "−2.77 %"
    assert found["pol"][-1] == "−9.13 %"
    assert found["hoh"][-1] == "−11.23 %"
    assert found["zoh"][3:] == ("–", "–", "–")
    assert found["bil"][3].startswith("+5.")
    assert found["zoh again"][4] == "no"
    assert [row[1] for row in verdicts.rows] == ["≥ 1", "≥ 0.95"]
    assert [row[4] for row in verdicts.rows] == ["yes", "yes"]


def test_the_result_survives_its_json():
    result = made_up()
    facts = json.loads(json.dumps(inference.outcome(result).facts()))
    again = Result.from_facts(facts)
    assert again == result
    assert again.facts() == result.facts()
    assert facts["fastest"]["1"]["tied"] == ["bil", "rk4"]
    assert facts["checks"][0]["holds"] is True
    case = next(c for c in facts["cases"] if c["name"] == "bil" and c["batch"] == 8)
    assert case["images_per_second"] == pytest.approx(8e3 / (8 * case["milliseconds_per_image"]["median"]))
    assert case["time_by_baseline"]["low"] <= case["time_by_baseline"]["median"] <= case["time_by_baseline"]["high"]
