"""`tustin bench inference` and `train`: every candidate, complete tables, checks of the worst rule."""

import json
from dataclasses import replace

import pytest

from tests.bench.models import NANO, OPTIONS, made_up, seconds_of, speed
from tustin.bench import inference
from tustin.bench.inference import checks
from tustin.bench.models import shares_tables
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
    tables = {table.name: table for table in inference.outcome(made_up()).tables}
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
    found = [check for check in checks(speed()) if "throughput" in check.claim]
    assert found[0].claim == "batch 1, throughput : zoh's, worst rule"
    assert {(check.which, check.holds, check.bound) for check in found} == {("foh", True, 0.97)}
    slow = speed(cost=lambda case, n: seconds_of(case, n) * (1.1 if case.candidate.discretization == "rk4" else 1))
    slower = [check for check in checks(slow) if "throughput" in check.claim]
    assert {(check.which, check.holds) for check in slower} == {("rk4", False)}


def test_bil_is_held_against_the_peer_at_one_batch_size():
    (found,) = [check for check in checks(speed()) if "deit" in check.claim]
    assert (found.claim, found.measured, found.holds) == ("batch 8, time : deit_tiny_patch16_224's, bil", 1.58, False)


def test_the_profile_is_of_bil_at_eight_images():
    options = replace(OPTIONS, batch_sizes=(1, 8, 32))
    profiled = inference.profiled(inference.cases(options))
    assert (profiled.candidate.discretization, profiled.batch, profiled.training) == ("bil", 8, False)
    only_zoh = replace(options, discretizations=("zoh",), batch_sizes=(4,))
    zoh = inference.profiled(inference.cases(only_zoh, training=True))
    assert (zoh.candidate.discretization, zoh.batch, zoh.training) == ("zoh", 4, True)
    shares = {"bil, batch 8": {"scan": 0.6, "norm": 0.4}, "another": {"scan": 1.0}}
    (table,) = shares_tables(replace(made_up(), notes={"shares": shares}), "Where the time goes")
    assert table.rows == [("scan", "60%", "100%"), ("norm", "40%", "–")]
    assert shares_tables(made_up(), "") == []


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


def test_training_is_held_to_its_own_bounds_beside_the_papers_costs():
    steps, verdicts = inference.outcome(made_up(replace(OPTIONS, batch_sizes=(8,)), training=True)).tables
    found = {row[0]: row[1:] for row in steps.rows}
    assert found["bil"][-1] == "−2.77 %"
    assert found["pol"][-1] == "−9.13 %"
    assert found["hoh"][-1] == "−11.23 %"
    assert found["zoh"][3:] == ("–", "–", "–")
    assert found["bil"][3].startswith("+5.")
    assert found["zoh again"][4] == "no"
    assert [row[1] for row in verdicts.rows] == ["≥ 1", "≥ 0.95", "≤ 1.6"]
    assert [row[4] for row in verdicts.rows] == ["yes", "yes", "yes"]
