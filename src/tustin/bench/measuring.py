"""Measure cases in rounds: memory first, one candidate a process; then times, all candidates of a size in one process.

In a round the candidates of a size are called in turns, lap by lap, then those of the next. The order of a lap is a row
of a balanced square, so that each has every place, and follows every other, about equally often. Half of the rounds are
in a fresh process, because where a process happens to put its tensors is worth something, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from . import memory
from .models import Candidate, Case
from .worker import Worker

Report = Callable[[str, int, int], None]
"""Told what is being done, and how many steps of how many are done."""

KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": "4000000000", "MALLOC_MMAP_THRESHOLD_": "33554432"}
"""Of the processes that are timed. glibc would give freed memory back to the system, and every tensor would start with
page faults."""

PROCESSES = 2
MOST_ROUNDS, FEWEST_ROUNDS = 24, 10
"""With fewer than ten nothing could be claimed of six rules."""
TURN = 0.2
"""Seconds for a candidate in a round; where calls are quick, the candidates are called lap by lap for this long."""
BUDGET = 520.0
"""Seconds for everything, where the number of rounds is not given."""


@dataclass
class Measured:
    """What was found out."""

    rounds: int = 0
    seconds: dict[Case, dict[int, list[float]]] = field(default_factory=dict)
    """Of each call, by round; the cases in the order in which they were given."""
    peaks: dict[Case, int] = field(default_factory=dict)
    """Bytes beside the weights."""
    skipped: dict[Case, str] = field(default_factory=dict)


def measure(cases: Sequence[Case], rounds: int | None, report: Report) -> Measured:
    """Memory and times of all that fits; without a number of rounds, as many as the budget has room for."""
    start = time.monotonic()
    found = Measured()
    _measure_memory(cases, found, report)
    fitting = [case for case in cases if not _left_out(case, found)]
    groups = _groups(fitting)
    found.seconds = {case: {} for case in fitting}
    for process in range(PROCESSES):
        if process and process >= found.rounds:
            break
        worker = Worker(KEEP_MEMORY)
        try:
            if process == 0:
                expected = _first_calls(fitting, worker, found, report)
                again = (PROCESSES - 1) * sum(expected.values())  # a worker calls what it does not know once untimed
                found.rounds = rounds or _rounds_within(BUDGET - (time.monotonic() - start) - again, expected)
            for number in range(found.rounds):
                if number * PROCESSES // found.rounds == process:
                    _one_round(number, groups, expected, worker, found, report)
        finally:
            worker.close()
    found.seconds = {case: rounds for case, rounds in found.seconds.items() if rounds}
    return found


def _groups(cases: Sequence[Case]) -> list[list[Case]]:
    """The cases of each size together."""
    groups: dict[tuple[int, int], list[Case]] = {}
    for case in cases:
        groups.setdefault((case.batch, case.img_size), []).append(case)
    return list(groups.values())


# --- memory -----------------------------------------------------------------------------------------------------------


def _measure_memory(cases: Sequence[Case], found: Measured, report: Report) -> None:
    """Of every candidate, from the smallest case on, until one would not fit."""
    candidates = [c for c in dict.fromkeys(case.candidate for case in cases) if c == _plain(c)]
    waiting = [Worker(memory.ENVIRONMENT)]
    try:
        for done, candidate in enumerate(candidates):
            report(f"memory, {candidate.name}", done, len(candidates))
            if done + 1 < len(candidates):
                waiting.append(Worker(memory.ENVIRONMENT))  # for the next one, which starts in the meantime
            own = sorted((case for case in cases if case.candidate == candidate), key=lambda case: case.pixels)
            for place, case in enumerate(own):
                known = {other: found.peaks[other] for other in own[:place] if other in found.peaks}
                reason = memory.too_large(case, known) or _peak(case, waiting[0], found)
                if reason:
                    found.skipped |= dict.fromkeys(own[place:], reason)
                    break
            waiting.pop(0).close()
    finally:
        for worker in waiting:
            worker.close()


def _peak(case: Case, worker: Worker, found: Measured) -> str | None:
    """Note the peak; or why there is none, if the memory was not enough."""
    try:
        peak = worker.peak(case)
    except RuntimeError as error:
        if not any(sign in str(error) for sign in _OUT_OF_MEMORY):
            raise
        return f"the memory was not enough: {' '.join(str(error).split())[:150]}"
    if peak is not None:
        found.peaks[case] = peak
    return None


_OUT_OF_MEMORY = ("OutOfMemoryError", "can't allocate memory", "ended with code -9")


def _plain(candidate: Candidate) -> Candidate:
    """The one whose memory is measured, and tells for how many images there is room."""
    return Candidate(candidate.model, candidate.discretization)


def _left_out(case: Case, found: Measured) -> bool:
    return replace(case, candidate=_plain(case.candidate)) in found.skipped


# --- times ------------------------------------------------------------------------------------------------------------


def _first_calls(cases: Sequence[Case], worker: Worker, found: Measured, report: Report) -> dict[Case, float]:
    """Warm the cases up; roughly how long a call of each takes. What torch.compile cannot do is left out.

    The reference backend is slow, and no claim depends on it: this call of it is all that is measured.
    """
    expected = {}
    for done, case in enumerate(cases):
        report("first calls", done, len(cases))
        try:
            _, seconds = worker.first_calls(case)
            if case.candidate.backend == "reference":
                found.seconds[case][0] = [seconds]
            else:
                expected[case] = seconds
        except RuntimeError as error:
            if not case.candidate.compiled:
                raise
            found.skipped[case] = " ".join(str(error).split())[:200]  # a compiler's complaints can be pages long
    return expected


def _one_round(
    number: int,
    groups: Sequence[Sequence[Case]],
    expected: dict[Case, float],
    worker: Worker,
    found: Measured,
    report: Report,
) -> None:
    for done, group in enumerate(groups):
        report(f"round {number + 1} of {found.rounds}", number * len(groups) + done, found.rounds * len(groups))
        members = [case for case in group if case in expected]
        orders = [balanced_order(len(members), number + lap) for lap in range(len(members))]
        for case, calls in zip(members, worker.laps(members, orders, TURN * len(members)), strict=True):
            found.seconds[case][number] = calls


def balanced_order(n: int, number: int) -> list[int]:
    """Row `number` of Williams's square: 0, 1, n−1, 2, n−2, …, each shifted by the number of the row."""
    first = [(place + 1) // 2 if place % 2 else (n - place // 2) % n for place in range(n)]
    return [(place + number) % n for place in first]


def _rounds_within(left: float, expected: dict[Case, float]) -> int:
    """As many as fit, an even number of them."""
    groups = ([expected[case] for case in group] for group in _groups([*expected]))
    seconds = sum(max(TURN * len(laps), sum(laps)) for laps in groups)
    return max(FEWEST_ROUNDS, min(MOST_ROUNDS, int(left / seconds) // 2 * 2))
