"""`tustin bench transformers`: what it times, ratios to transformers' own path, and what a run without a peer says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tustin.bench import language, transformers
from tustin.bench.language import DECODING, PREFILL, TRAINING
from tustin.bench.outcome import Outcome
from tustin.cli import main
from tustin.report.measurement import Options, Result
from tustin.report.timing import Lap, Timing

OPTIONS = Options(threads=1, rounds=2, lengths=(8,), quick=True)


def result_of(seconds: dict[tuple[str, str], float]) -> Result:
    """A made-up result: seconds by path and task."""
    found = {
        case: Timing({Lap(0, number, 0): seconds[case.path, case.task] for number in range(7)})
        for case in transformers.cases(replace(OPTIONS, lengths=(512,), quick=False))
        if (case.path, case.task) in seconds
    }
    machine = {"versions": {}, "cpu": {"model": "a CPU", "cores": 2}, "gpu": None, "load": 0.0, "native_level": "v3"}
    shares = {"prefill, 512 tokens, 24 layers": {"matrix products": 0.75, "scan": 0.25}}
    command = "tustin bench transformers"
    return Result("transformers", command, "2026-01-01", OPTIONS, machine, 2, 1, found, notes={"shares": shares})


SECONDS = {
    ("transformers", TRAINING): 80.0,
    ("tustin", TRAINING): 0.5,
    ("transformers", PREFILL): 0.6,
    ("mambapy", PREFILL): 0.9,
    ("tustin", PREFILL): 0.2,
    ("transformers", DECODING): 0.05,
    ("tustin", DECODING): 0.04,
}


def test_no_path_shares_a_process_and_all_have_a_turn_in_each_round() -> None:
    """What our library does to memory would help the others, too."""
    planned = transformers.cases(OPTIONS)
    plan = transformers.plan_of(planned, 3)
    assert len({plan.process(case) for case in planned}) == len(language.PATHS)
    parties = plan.parties(dict.fromkeys(planned, 0.1), 3)
    assert [(party.members, plan.process(party.members[0]).name, party.turns) for party in parties] == [
        ((case,), case.path, 3) for case in planned
    ]
    assert plan.once(planned[0], 11.0)
    assert not plan.once(planned[0], 9.0)


def test_checks() -> None:
    outcome = transformers.outcome(result_of(SECONDS))
    assert [(check.measured, check.holds) for check in outcome.checks] == [
        (160.0, True),
        (3.0, False),
        (1.25, False),
    ]
    [times, shares, _] = outcome.tables
    assert ("decoding, 24 layers", "50.0", "–", "40.0", "25.0", "1.2 (1.2 to 1.2)", "–", "7, –, 7") in times.rows
    assert ("matrix products", "75%") in shares.rows


def test_what_was_not_measured() -> None:
    outcome = transformers.outcome(result_of({("tustin", DECODING): 0.04}))
    assert [check.measured for check in outcome.checks] == [None] * 3


def test_the_result_can_be_read_back() -> None:
    facts = transformers.outcome(result_of(SECONDS)).facts()
    again = transformers.outcome(Result.from_facts(facts))
    assert isinstance(again, Outcome)
    assert again.facts() == facts


def test_without_mambapy_the_rest_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformers.importlib.util, "find_spec", lambda name: None)
    reasons = [transformers._missing(case) for case in transformers.cases(OPTIONS)]
    assert reasons == [None, "mambapy is not installed", None] * 3


def test_the_command_says_what_it_wants(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "transformers", "--lengths", "0"]) == 2
    assert "lengths" in capsys.readouterr().err
