"""A process of its own for every candidate: what one does to memory must not make another faster or slower.

It does so by much. glibc gives the memory of large tensors back to the system when they are freed, and getting it again
costs a page fault for every 4 KiB; but not in a process whose heap another candidate has left large and full of holes.
"""

from __future__ import annotations

import functools
import gc
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, TypeVar, cast

import torch

from ..discretize import RuleFile, imported_files
from ..report.measurement import Case
from ..report.speed import ModelCase
from . import language, machine, models, stand_in, workloads

Answer = TypeVar("Answer")

_WARM_UP_BELOW = 0.2
"""Calls of fewer seconds than this are made once untimed where they would not find caches and threads as in a loop."""

_LONG = 1.0
"""Seconds of a first call that is not made again to learn how long the next takes. The first ever always is, because it
imports a lot."""

_QUEUED = 10
"""Calls of a scan that a GPU is given before it is waited for: the wait takes as long as a small call."""

_expected: dict[Case, float] = {}
"""Seconds of the last call of each case."""

MAKERS: dict[str, Callable[[Any], Callable[[], object]]] = {
    "scan": workloads.make_call,
    "model": models.make_call,
    "language": language.make_call,
    "limit": machine.make_call,
    "mambavision": stand_in.make_call,
}
"""What makes a call, ready to be timed, of each kind of case."""


class Worker:
    """The process; it starts while the constructor returns, and asks nothing of the one that started it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, imported_files()), daemon=True)
        before = dict(os.environ)
        os.environ.update(environment)  # the process takes it over
        try:
            self._process.start()
        finally:
            os.environ.clear()
            os.environ.update(before)
        other.close()  # so that the end of the process ends the connection

    def ask(self, work: Callable[..., Answer], *arguments: object) -> Answer:
        """What a function returns over there; RuntimeError if it fails, or the process ends."""
        try:
            self._connection.send((work, arguments))
            done, answer = self._connection.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self._process.join()
            what = arguments[0]
            timed = ", ".join(map(str, what)) if isinstance(what, list | tuple) else what
            raise RuntimeError(
                f"the process that was timing {timed} ended with code {self._process.exitcode}; "
                "if that is -9, the system ran out of memory"
            ) from None
        if not done:
            raise RuntimeError(answer)
        return cast(Answer, answer)

    def close(self) -> None:
        """Let it end by itself, so that it can tidy up; if it is still busy, at once."""
        self._connection.close()
        self._process.join(timeout=3)
        self._process.terminate()
        self._process.join()


# --- inside the process -----------------------------------------------------------------------------------------------


def _serve(connection: Connection, rules: Sequence[RuleFile]) -> None:
    """Answer requests until the other end is closed."""
    for file in rules:
        file.run()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who asks
    gc.disable()  # not in the middle of a call
    while True:
        try:
            work, arguments = connection.recv()
        except EOFError:
            return
        try:
            answer: tuple[bool, object] = True, work(*arguments)
        except Exception as error:  # the one who asked decides what to make of it
            answer = False, f"{type(error).__name__}: {error}"
        gc.collect()  # before the answer, which lets the next one start its turn
        try:
            connection.send(answer)
        except BrokenPipeError:  # nobody waits for it any more
            return


def first_calls(case: Case) -> tuple[float, float]:
    """Seconds of the first call, and of the next one unless the first was long."""
    again = case.compiled or not _expected
    first = _seconds(case)
    return first, _seconds(case) if again or first <= _LONG else first


def laps(cases: Sequence[Case], orders: Sequence[Sequence[int]], at_least: float) -> list[list[float]]:
    """Seconds of each call, case by case: all in turns, in one order after the other, for `at_least` seconds."""
    before: Case | None = None

    def call(member: int) -> float:
        nonlocal before
        case = cases[member]
        # After another one the tensors and the number of threads are not as in a loop.
        after_another = before is None or case.work != before.work
        if case not in _expected or (_expected[case] < _WARM_UP_BELOW and after_another):
            _ready(case)()
        before = case
        return _seconds(case)

    return in_laps(call, orders, at_least)


def in_laps(
    call: Callable[[int], float], orders: Sequence[Sequence[int]], at_least: float, most: int = 50
) -> list[list[float]]:
    """What each call took, member by member: laps for `at_least` seconds and at least one, their orders one by one.

    `call` calls a member by its number, and tells what it took.
    """
    seconds: list[list[float]] = [[] for _ in orders[0]]
    end = time.perf_counter() + at_least
    lap = 0
    while lap == 0 or (time.perf_counter() < end and lap < most):
        for member in orders[lap % len(orders)]:
            seconds[member].append(call(member))
        lap += 1
    return seconds


def time_once(run: Callable[[], object]) -> float:
    """Seconds of one call; its result is freed after the clock has stopped."""
    start = time.perf_counter()
    result = run()
    seconds = time.perf_counter() - start
    del result
    return seconds


def shares(case: Case) -> dict[str, float]:
    """The groups of operations that a call of a model consists of, each with its share of the time."""
    return models.shares(_ready(case))


def _seconds(case: Case) -> float:
    """Of a call, now; noted as what the next may take."""
    _expected[case] = time_once(_ready(case)) / _calls(case)
    return _expected[case]


def _ready(case: Case) -> Callable[[], object]:
    torch.set_num_threads(case.threads)
    return _call(case)


def _calls(case: Case) -> int:
    """How many calls one of `_call` makes."""
    return 1 if isinstance(case, ModelCase) or case.device == "cpu" else _QUEUED


@functools.cache
def _call(case: Case) -> Callable[[], object]:
    call = MAKERS[case.kind](case)

    def waited() -> object:
        for _ in range(_calls(case)):
            result = call()
        torch.accelerator.synchronize()
        return result

    return call if case.device == "cpu" else waited
