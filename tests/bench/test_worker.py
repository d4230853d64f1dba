"""The process that times: laps, warm calls, and failures in words. No test looks at a clock."""

import os
from dataclasses import replace

import pytest
import torch

from tests.bench.results import CELL
from tustin.bench import worker as worker_module
from tustin.bench.checks import LONG
from tustin.bench.machine import Limit
from tustin.bench.worker import Worker, first_calls, in_laps, laps


def test_there_is_a_lap_at_least_and_not_laps_without_end():
    calls = []

    def call(member):
        calls.append(member)
        return float(len(calls))

    assert in_laps(call, [[1, 0], [0, 1]], 0.0) == [[2.0], [1.0]]
    assert [len(own) for own in in_laps(call, [[1, 0], [0, 1]], 1e9, most=3)] == [3, 3]
    assert calls == [1, 0, 1, 0, 0, 1, 1, 0]


def test_a_call_that_would_find_caches_or_threads_cold_is_made_once_untimed(monkeypatch):
    made = []
    monkeypatch.setattr(worker_module, "_call", lambda key: lambda: made.append(key))
    monkeypatch.setattr(worker_module, "_expected", {})
    quick, other, one_thread, long = (
        CELL,
        replace(CELL, discretization="bil"),
        replace(CELL, threads=1),
        replace(CELL, L=LONG),
    )
    keys, order = [quick, other, one_thread, long], [0, 1, 2, 3, 0]
    seconds = dict.fromkeys(keys, 0.01) | {long: 0.1}
    monkeypatch.setattr(worker_module, "time_once", lambda run: run() or seconds[made[-1]])
    unknown = worker_module.laps(keys, [[0, 1, 2, 3]], 0.0)
    assert unknown == [[0.01], [0.01], [0.01], [0.1]]
    assert made == [key for key in keys for _ in range(2)]
    made.clear()
    worker_module.laps(keys, [order], 0.0)
    assert made == [quick, quick, other, one_thread, one_thread, long, long, quick, quick]
    seconds[quick] = seconds[long] = 0.5  # too long to be made twice
    worker_module.laps(keys, [order], 0.0)
    made.clear()
    worker_module.laps(keys, [order], 0.0)
    assert made == [quick, other, one_thread, one_thread, long, quick]


@pytest.fixture
def worker():
    worker = Worker({"TUSTIN_BENCH_TEST": "1"})
    yield worker
    worker.close()


def test_a_worker_answers_fails_in_words_and_its_death_is_noticed(worker):
    assert "TUSTIN_BENCH_TEST" not in os.environ
    small = replace(CELL, backend="reference", batch=1, L=2, threads=1)
    first, second = worker.ask(first_calls, small)
    assert first > 0
    assert second > 0
    assert all(seconds > 0 for (seconds,) in worker.ask(laps, [small, Limit("gemm", threads=1)], [[1, 0]], 0.0))
    with pytest.raises(RuntimeError, match="ValueError: unknown discretization 'bill'"):
        worker.ask(first_calls, replace(small, discretization="bill"))
    worker._process.kill()
    with pytest.raises(RuntimeError, match=r"ended with code -9; if that is -9, the system ran out of memory"):
        worker.ask(first_calls, small)


def test_calls_on_a_gpu_are_queued_and_waited_for(monkeypatch):
    done = []
    monkeypatch.setitem(worker_module.MAKERS, "scan", lambda cell: lambda: done.append("call"))
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: done.append("wait"))
    worker_module.laps([replace(CELL, backend="triton", device="cuda")], [[0]], 0.0)
    assert done[-11:] == ["call"] * 10 + ["wait"]
