"""How everything is measured: first calls, then rounds in which all have their turn, in processes of their own.

What is compared most closely is a party: in each lap every member is called once, so that a slow moment hits all alike.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..report.measurement import Case, Options, Result
from ..report.terminal import Report
from ..report.timing import Lap, Timing
from . import worker
from .worker import Worker

Timed = TypeVar("Timed", bound=Case)

FIRST_CALL = -1
"""The party of a case of which the first call is all that is measured."""


@dataclass(frozen=True)
class Process:
    """A process that times cases: all that name the same one share it."""

    name: str
    environment: tuple[tuple[str, str], ...] = ()


class Processes(dict[Process, Worker]):
    """The processes, each started when it is first asked for."""

    def __missing__(self, process: Process) -> Worker:
        self[process] = Worker(dict(process.environment))
        return self[process]

    def close(self) -> None:
        """End them; who asks again gets a fresh one."""
        while self:
            self.popitem()[1].close()


@dataclass(frozen=True)
class Party:
    """Cases whose calls follow each other in laps."""

    members: tuple[Case, ...]
    """All of the same process."""
    turns: int
    """In how many rounds it takes part, evenly spread."""
    seconds: float
    """What a turn takes, if one lap does not take longer."""
    balanced: bool = False
    """Whether the order of the laps changes, so that each member has every place, and follows every other, about
    equally often; or else it is always that of the members."""

    def orders(self, number: int) -> list[list[int]]:
        """The orders of the laps in this round."""
        n = len(self.members)
        return [balanced_order(n, number + lap) for lap in range(n)] if self.balanced else [[*range(n)]]


def side_by_side(seconds: float) -> Callable[[Mapping[Case, float], int], list[Party]]:
    """The parties of a plan: the cases of the same work in all rounds, for so many seconds each."""
    return lambda expected, rounds: [
        Party(same, rounds, seconds * len(same), balanced=True) for same in of_same_work(expected)
    ]


def of_same_work(cases: Iterable[Timed]) -> list[tuple[Timed, ...]]:
    """The cases that differ only in who does the work, together."""
    groups: dict[Case, list[Timed]] = {}
    for case in cases:
        groups.setdefault(case.work, []).append(case)
    return [tuple(group) for group in groups.values()]


@dataclass(frozen=True)
class Plan:
    """What to measure, and how."""

    cases: Sequence[Case]
    process: Callable[[Case], Process]
    rounds: int | None
    """None for as many as `fit`."""
    parties: Callable[[Mapping[Case, float], int], Sequence[Party]]
    """Who takes turns, given roughly how long a call of each case takes, and the number of rounds."""
    fit: Callable[[Mapping[Case, float]], int] | None = None
    """How many rounds there is time for, given roughly how long a call of each case takes."""
    refuse: Callable[[Case, Mapping[Case, float], Processes], str | None] = lambda case, known, processes: None
    """Why a case is left out, given what is known of those before it."""
    may_fail: Callable[[Case], bool] = lambda case: case.compiled
    """Whether a case that fails is left out; any other failure ends the run."""
    once: Callable[[Case, float], bool] = lambda case, seconds: False
    """Whether what was found of a case at the start, so many seconds a call, is all that is measured of it."""
    processes: int = 1
    """Fresh ones after each half, third and so on of the rounds: where a process puts its tensors is luck, too."""


@dataclass
class Measured:
    """What was found out."""

    laps: dict[Case, dict[Lap, float]]
    """Seconds of every call; a case without any was not measured."""
    rounds: int = 0
    processes: int = 1
    skipped: dict[Case, str] = field(default_factory=dict)
    first: dict[Case, float] = field(default_factory=dict)
    """Seconds of the first call, with whatever it had to set up or compile."""

    @property
    def timings(self) -> dict[Case, Timing]:
        return {case: Timing(calls) for case, calls in self.laps.items() if calls}

    def result(self, benchmark: str, command: str, options: Options, machine: dict[str, Any], **more: Any) -> Result:
        """Together with where and when, and `more` fields of the result."""
        date = datetime.datetime.now(datetime.UTC).date().isoformat()
        found = (self.rounds, self.processes, self.timings)
        return Result(benchmark, command, date, options, machine, *found, **{"skipped": self.skipped, **more})


def measure(plan: Plan, report: Report) -> Measured:
    """Measure everything that is not left out; the cases stay in their order."""
    found = Measured({case: {} for case in plan.cases})
    with closing(Processes()) as processes:
        expected = _first_calls(plan, processes, found, report)
        if (rounds := plan.rounds) is None:
            if plan.fit is None:
                raise ValueError("rounds must be given: nothing says how many there is time for")
            rounds = plan.fit(expected)
        found.rounds = rounds
        found.processes = min(plan.processes, found.rounds)
        _in_turns(plan, plan.parties(expected, found.rounds), processes, found, report)
    return found


def _first_calls(plan: Plan, processes: Processes, found: Measured, report: Report) -> dict[Case, float]:
    """Warm the cases up; roughly how long a call of each takes that will have turns."""
    known: dict[Case, float] = {}
    for number, case in enumerate(plan.cases):
        report("first calls", number, len(plan.cases))
        if reason := plan.refuse(case, known, processes):
            found.skipped[case] = reason
            continue
        try:
            found.first[case], known[case] = processes[plan.process(case)].ask(worker.first_calls, case)
        except RuntimeError as error:
            if not plan.may_fail(case):
                raise
            found.skipped[case] = " ".join(str(error).split())[:200]  # a compiler's complaints can be pages long
            continue
        if plan.once(case, known[case]):
            found.laps[case][Lap(FIRST_CALL, 0, 0)] = known[case]
    return {case: seconds for case, seconds in known.items() if not found.laps[case]}


def _in_turns(plan: Plan, parties: Sequence[Party], processes: Processes, found: Measured, report: Report) -> None:
    """Let every party have its turns; who is a member of several is measured in all of them."""
    rounds, done = found.rounds, 0
    for number in range(rounds):
        if number * found.processes // rounds != max(0, number - 1) * found.processes // rounds:
            processes.close()
        for place, party in enumerate(parties):
            if not takes_part(party.turns, rounds, number):
                continue
            report(f"round {number + 1} of {rounds}", done, sum(min(party.turns, rounds) for party in parties))
            timer = processes[plan.process(party.members[0])]
            seconds = timer.ask(worker.laps, party.members, party.orders(number), party.seconds)
            for member, calls in zip(party.members, seconds, strict=True):
                laps = {Lap(place, number, lap): call for lap, call in enumerate(calls)}
                found.laps.setdefault(member, {}).update(laps)
            done += 1


def profile(plan: Plan, cases: Sequence[Case], report: Report) -> dict[Case, dict[str, float]]:
    """The groups of operations that a call of each case consists of, with their shares of the time."""
    shares = {}
    with closing(Processes()) as processes:
        for done, case in enumerate(cases):
            report("where the time goes", done, len(cases))
            shares[case] = processes[plan.process(case)].ask(worker.shares, case)
    return shares


def takes_part(turns: int, rounds: int, number: int) -> bool:
    """Whether one who has `turns` turns has one in this round."""
    turns = min(turns, rounds)
    return (number + 1) * turns // rounds > number * turns // rounds


def balanced_order(n: int, number: int) -> list[int]:
    """Row `number` of Williams's square: 0, 1, n−1, 2, n−2, …, each shifted by the number of the row."""
    first = [(place + 1) // 2 if place % 2 else (n - place // 2) % n for place in range(n)]
    return [(place + number) % n for place in first]
