"""How models are measured: memory apart, rounds in two processes, and what does not fit is named."""

import functools
from dataclasses import replace

import pytest

from tests.bench.models import CASE, OPTIONS, seconds_of
from tustin.bench import inference, measure, memory, model_plan
from tustin.bench.outcome import left_out
from tustin.report.speed import Speed


class FakeWorker:
    """Answers at once, from a table of made-up costs."""

    def __init__(self, started, environment):
        self.environment = environment
        self.calls = []
        started.append(self)

    def ask(self, work, *arguments):
        return getattr(self, work.__name__)(*arguments)

    def first_calls(self, case):
        self.calls.append(("first", case))
        if case.candidate.compiled:
            raise RuntimeError("InductorError: no compiler\nsecond line")
        return 1.0, 0.5

    def laps(self, cases, orders, at_least):
        self.calls += [("lap", case) for case in cases]
        return [[seconds_of(case, 0)] for case in cases]

    def growth(self, case):
        self.calls.append(("peak", case))
        return 10**9 * case.batch

    def shares(self, case):
        self.calls.append(("shares", case))
        return {"scan": 1.0}

    def close(self):
        self.calls.append(("close", None))


@pytest.fixture
def workers(monkeypatch):
    started = []
    monkeypatch.setattr(measure, "Worker", functools.partial(FakeWorker, started))
    monkeypatch.setattr("tustin.bench.machine._load", lambda: 0.0)
    monkeypatch.setattr(memory.workloads, "available_bytes", lambda device: 10**15)
    return started


def silent(*progress):
    pass


def run(cases, rounds):
    """The result of these cases, whatever else was asked for."""
    return model_plan.run("inference", "", replace(OPTIONS, rounds=rounds), cases, cases[0], silent)


def test_memory_is_measured_apart_and_half_of_the_rounds_in_a_fresh_process(workers):
    options = replace(OPTIONS, discretizations=("zoh", "bil"), batch_sizes=(1, 8))
    found = run(inference.cases(options), 6)
    of_memory, of_time, of_profile = workers[:3], workers[3:-1], workers[-1]
    assert [worker.environment for worker in of_memory] == [memory.ENVIRONMENT] * 3  # zoh, bil and DeiT
    assert [worker.environment for worker in of_time] == [model_plan.KEEP_MEMORY] * 2
    assert [kind for kind, _ in of_profile.calls] == ["shares", "close"]
    assert found.notes == {"shares": {"zoh, batch 1, 224 px": {"scan": 1.0}}}
    assert all(worker.calls[-1] == ("close", None) for worker in workers)
    assert found.rounds == 6
    assert found.processes == 2
    for case, timing in found.timings.items():
        assert sorted({lap.round for lap in timing.laps}) == (
            [0] if case.candidate.backend == "reference" else list(range(6))
        )
    first = [[case for kind, case in worker.calls if kind == "first"] for worker in of_time]
    assert [case.batch for case in first[0] if case.candidate.backend == "reference"] == [1]
    assert not first[1]  # known by then
    laps = [[case for kind, case in worker.calls if kind == "lap"] for worker in of_time]
    assert len(laps[0]) == len(laps[1])
    assert not any(case.candidate.backend == "reference" for case in laps[0] + laps[1])
    first_round = laps[0][: len(laps[0]) // 3]
    assert [case.batch for case in first_round] == sorted(case.batch for case in first_round)


def test_one_round_needs_one_process(workers):
    run([CASE], 1)
    assert [worker.environment for worker in workers[:-1]] == [memory.ENVIRONMENT, model_plan.KEEP_MEMORY]


def test_the_rounds_fill_the_budget():
    expected = dict.fromkeys([replace(CASE, batch=batch) for batch in range(1, 9)], 2.0)
    assert model_plan.rounds_within(200.0, expected) == 12
    assert model_plan.rounds_within(1e9, expected) == model_plan.MOST_ROUNDS
    assert model_plan.rounds_within(0.0, expected) == model_plan.FEWEST_ROUNDS


def test_a_batch_that_would_not_fit_ends_the_growth_and_is_named(workers, monkeypatch):
    monkeypatch.setattr(memory.workloads, "available_bytes", lambda device: 30 * 10**9)
    options = replace(OPTIONS, discretizations=("zoh", "bil"), batch_sizes=(1, 8, 16, 32, 64))
    found = run(inference.cases(options), 2)
    assert {case.batch for case in found.timings} == {1, 8, 16}
    assert {case.batch for case in found.skipped} == {32, 64}
    lines = left_out(found)
    assert lines[0] == (
        "zoh, batch 32, 224 px: it would need about 32 GB of memory, more than 80% of the 30 GB that are free"
    )
    assert Speed(found).scenarios() == {"real-time": 1, "high throughput": 16}


@pytest.mark.parametrize(
    "message",
    [
        "OutOfMemoryError: CUDA out of memory.",
        "RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes",
        "the process that was timing zoh ended with code -9; if that is -9, the system ran out of memory",
    ],
)
def test_memory_that_runs_out_all_the_same_ends_the_growth(workers, monkeypatch, message):
    def growth(self, case):
        if case.batch > 4:
            raise RuntimeError(message)
        return 1

    monkeypatch.setattr(FakeWorker, "growth", growth)
    found = run([replace(CASE, batch=batch) for batch in (1, 4, 8, 16)], 1)
    assert {case.batch for case in found.timings} == {1, 4}
    assert {reason[:27] for reason in found.skipped.values()} == {"the memory was not enough: "}


def test_any_other_failure_is_not_hidden(workers, monkeypatch):
    def growth(self, case):
        raise RuntimeError("the process that was timing zoh ended with code -11; if that is -9, it ran out of memory")

    monkeypatch.setattr(FakeWorker, "growth", growth)
    with pytest.raises(RuntimeError, match="code -11"):
        run([CASE], 1)


def test_what_torch_compile_cannot_do_is_left_out_and_told(workers):
    options = replace(OPTIONS, discretizations=("zoh", "bil"), batch_sizes=(1,), compile=True)
    found = run(inference.cases(options), 2)
    assert not any(case.candidate.compiled for case in found.timings)
    assert left_out(found) == [
        "zoh, torch.compile, batch 1, 224 px: InductorError: no compiler second line",
        "deit_tiny_patch16_224, torch.compile, batch 1, 224 px: InductorError: no compiler second line",
    ]
