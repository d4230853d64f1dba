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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

import torch

from . import machine, memory, models, timing, workloads
from .machine import Limit
from .models import Candidate, Case
from .workloads import Cell

_WARM_UP_BELOW = 0.2
"""Calls of fewer seconds than this are made once untimed where they would not find caches and threads as in a loop."""

_LONG = 1.0
"""Seconds of a first call that is not made again to learn how long the next takes. The first ever always is, because it
imports a lot."""


Key = Cell | Case | Limit
"""What is timed: a scan, a model, or a limit of the machine."""

_QUEUED = 10
"""Calls that a GPU is given before it is waited for: the wait takes as long as a small call."""


class Worker:
    """The process; it starts while the constructor returns, and asks nothing of the one that started it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other,), daemon=True)
        with _environment(environment):
            self._process.start()
        other.close()  # so that the end of the process ends the connection

    def first_calls(self, cell: Cell | Case) -> tuple[float, float]:
        """Seconds of the first call, and of the next one unless the first was long; RuntimeError if it fails."""
        seconds: tuple[float, float] = self._ask("first_calls", cell)
        return seconds

    def laps(self, keys: Sequence[Key], orders: Sequence[Sequence[int]], at_least: float) -> list[list[float]]:
        """Seconds of each call, key by key: all in turns, in one order after the other, for `at_least` seconds."""
        seconds: list[list[float]] = self._ask("laps", keys, orders, at_least)
        return seconds

    def peak(self, case: Case) -> int | None:
        """Bytes that one call of a model needs beside its weights; None where the system does not tell."""
        peak: int | None = self._ask("peak", case)
        return peak

    def close(self) -> None:
        """Let it end by itself, so that it can tidy up; if it is still busy, at once."""
        self._connection.close()
        self._process.join(timeout=3)
        self._process.terminate()
        self._process.join()

    def _ask(self, *request: object) -> Any:
        try:
            self._connection.send(request)
            done, answer = self._connection.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self._process.join()
            raise RuntimeError(
                f"the process that was timing {_shown(request[1])} ended with code {self._process.exitcode}; "
                "if that is -9, the system ran out of memory"
            ) from None
        if not done:
            raise RuntimeError(answer)
        return answer


def _shown(what: object) -> str:
    return ", ".join(map(str, what)) if isinstance(what, list | tuple) else str(what)


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """What a process started inside finds in its environment."""
    before = dict(os.environ)
    os.environ.update(changes)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


# --- inside the process -----------------------------------------------------------------------------------------------


def _serve(connection: Connection) -> None:
    """Answer requests until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who asks
    gc.disable()  # not in the middle of a call
    requests: dict[str, Callable[..., object]] = {"first_calls": _first_calls, "laps": _laps, "peak": _peak}
    while True:
        try:
            name, *arguments = connection.recv()
        except EOFError:
            return
        try:
            answer: tuple[bool, object] = True, requests[name](*arguments)
        except Exception as error:  # the one who asked decides what to make of it
            answer = False, f"{type(error).__name__}: {error}"
        gc.collect()  # before the answer, which lets the next one start its turn
        try:
            connection.send(answer)
        except BrokenPipeError:  # nobody waits for it any more
            return


def _first_calls(cell: Cell | Case) -> tuple[float, float]:
    torch.set_num_threads(cell.threads)
    first = timing.time_once(_call(cell)) / _calls(cell)
    compiles = cell.backend == workloads.COMPILED if isinstance(cell, Cell) else cell.candidate.compiled
    again = first <= _LONG or compiles or not _expected
    next_one = timing.time_once(_call(cell)) / _calls(cell) if again else first
    _expected[cell] = next_one
    return first, next_one


def _laps(keys: Sequence[Key], orders: Sequence[Sequence[int]], at_least: float) -> list[list[float]]:
    before: Key | None = None

    def call(member: int) -> float:
        nonlocal before
        key = keys[member]
        torch.set_num_threads(key.threads)
        run = _call(key)
        if _is_cold(key, before):
            run()
        before = key
        _expected[key] = timing.time_once(run) / _calls(key)
        return _expected[key]

    return timing.in_laps(call, orders, at_least)


def _is_cold(key: Key, before: Key | None) -> bool:
    """Whether a call after one of `before` would not be as in a loop: other tensors, another number of threads."""
    if key not in _expected:
        return True
    return _expected[key] < _WARM_UP_BELOW and (before is None or _work(key) != _work(before))


_expected: dict[Key, float] = {}


def _peak(case: Case) -> int | None:
    torch.set_num_threads(case.threads)
    return memory.growth(case)


_NOBODY = Candidate("", None)


def _work(key: Key) -> Key:
    """The same for all that only differ in who does it."""
    if isinstance(key, Cell):
        return replace(key, discretization="", level="")
    return replace(key, candidate=_NOBODY) if isinstance(key, Case) else key


def _calls(key: Key) -> int:
    """How many calls one of `_call` makes."""
    return 1 if isinstance(key, Case) or key.device == "cpu" else _QUEUED


@functools.cache
def _call(key: Key) -> Callable[[], object]:
    if isinstance(key, Case):
        return models.make_call(key)
    call = workloads.make_call(key) if isinstance(key, Cell) else machine.limit_calls(key.device)[key.name]
    if key.device == "cpu":
        return call

    def queued() -> None:
        for _ in range(_QUEUED):
            call()
        torch.accelerator.synchronize()

    return queued
