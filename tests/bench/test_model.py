"""`tustin bench model`: ratios between ViM and DeiT, and what a run without one of them says."""

from dataclasses import replace

from tests.bench.models import result_of
from tests.bench.results import timing
from tustin.bench import measure, model, model_plan
from tustin.report.measurement import Options

SECONDS = {model.OURS: 0.2, model.PEER: 0.1, model.SLOW: 8.0, model.OURS_LARGE: 1.0, model.PEER_LARGE: 3.0}
SECONDS |= {model.OURS_STEP: 1.5, model.PEER_STEP: 1.0}


def made_up():
    options = Options(threads=2, rounds=7)
    timings = {replace(case, threads=2): timing(seconds, seconds) for case, seconds in SECONDS.items()}
    peaks = {replace(model.OURS_LARGE, threads=2): 40 << 20, replace(model.PEER_LARGE, threads=2): 50 << 20}
    shares = {"inference": {"scan": 0.6, "norm": 0.4}, "training step": {"scan": 1.0}}
    return replace(result_of("model", options, timings, peaks), notes={"shares": shares})


def test_the_checks_are_ratios_of_times_and_memory():
    found = [(check.measured, check.holds) for check in model.checks(made_up())]
    assert found == [(2.0, False), (40.0, True), (3.0, True), (0.8, True), (1.5, True)]


def test_the_tables_show_every_case_and_where_the_time_goes():
    times, shares, checks = model.outcome(made_up()).tables
    assert [row[0] for row in times.rows][-1] == "deit_tiny_patch16_224, batch 8, 224 px, training step"
    assert ("bil, batch 1, 1248 px", "1000", "±0%", "40") in times.rows
    assert shares.rows == [("scan", "60%", "100%"), ("norm", "40%", "–")]
    assert len(checks.rows) == 5


def test_what_was_not_measured_is_not_claimed():
    few = replace(made_up(), timings={}, peaks={})
    assert {check.holds for check in model.checks(few)} == {None}


class FakeWorker:
    """Answers at once."""

    def __init__(self, environment):
        pass

    def first_calls(self, case):
        return 1.0, SECONDS[replace(case, threads=1)]

    def laps(self, cases, orders, at_least):
        return [[SECONDS[replace(case, threads=1)]] for case in cases]

    def peak(self, case):
        return 10**6

    def shares(self, case):
        return {"scan": 1.0}

    def close(self):
        pass


def test_a_run_times_all_cases_in_turns_and_the_reference_backend_once(monkeypatch):
    for module in (measure, model_plan):
        monkeypatch.setattr(module, "Worker", FakeWorker)
    monkeypatch.setattr("tustin.bench.machine._load", lambda: 0.0)
    result = model.run(Options(threads=2, rounds=3), "tustin bench model", lambda *progress: None)
    calls = {replace(case, threads=1): len(timing.seconds) for case, timing in result.timings.items()}
    assert calls == {case: 1 if case == model.SLOW else 3 for case in model.CASES}
    assert {case.img_size for case in result.peaks} == {model.LARGE}
    assert list(result.notes["shares"]) == ["inference", "training step"]
    assert [check.measured for check in model.checks(result)] == [2.0, 40.0, 3.0, 1.0, 1.5]
