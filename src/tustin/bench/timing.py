"""Time many things fairly: in turns, so that a slow minute of the machine hits all alike, and with medians."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from .pairing import Ratio

Member = TypeVar("Member", bound=Hashable)


class Lap(NamedTuple):
    """When a call was made: the calls of one lap of a party follow each other at once."""

    party: int
    round: int
    number: int


@dataclass(frozen=True)
class Timing:
    """Seconds per call: the median, and the quartiles around it."""

    calls: int
    low: float
    median: float
    high: float
    laps: Mapping[Lap, float] = field(default_factory=dict)
    """Every call."""

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, as a fraction of the median."""
        return (self.high - self.low) / 2 / self.median

    def told(self) -> dict[str, Any]:
        """As plain data: the calls with their party, round and lap."""
        return asdict(self) | {"laps": [[*lap, seconds] for lap, seconds in self.laps.items()]}


def summarize(laps: Mapping[Lap, float]) -> Timing:
    """The summary of single calls; of one call it is that call."""
    seconds = [*laps.values()]
    low, median, high = statistics.quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1 else seconds * 3
    return Timing(len(seconds), low, median, high, dict(laps))


def ratio(own: Timing, other: Timing) -> Ratio:
    """Time of one by time of the other, in each lap that both took part in: what slows the machine down slows both.

    If there is no such lap, in each round; if there is none, of their medians.
    """
    for moment in (_lap, _round):
        mine, theirs = _medians(own, moment), _medians(other, moment)
        if values := tuple(mine[when] / theirs[when] for when in mine if when in theirs):
            return Ratio(values)
    return Ratio((own.median / other.median,))


def _lap(lap: Lap) -> Hashable:
    return lap


def _round(lap: Lap) -> Hashable:
    return lap.round


def _medians(timing: Timing, moment: Callable[[Lap], Hashable]) -> dict[Hashable, float]:
    calls: dict[Hashable, list[float]] = {}
    for lap, seconds in timing.laps.items():
        calls.setdefault(moment(lap), []).append(seconds)
    return {when: statistics.median(seconds) for when, seconds in calls.items()}


@dataclass(frozen=True)
class Party(Generic[Member]):
    """What is compared with each other most closely: in each lap every member is called once."""

    members: Sequence[Member]
    run: Callable[[float], Sequence[Sequence[float]]]
    """Run laps for that many seconds, and at least one: what the calls took, member by member."""
    turns: int
    """In how many rounds it takes part."""


def in_turns(
    parties: Sequence[Party[Member]], rounds: int, at_least: float, tick: Callable[[int], None]
) -> dict[Member, Timing]:
    """Let every party take its turn in every round; one with fewer turns than that, in evenly spread rounds.

    A turn takes `at_least` seconds for each member. `tick` is called with the number of the round after every turn. Who
    is a member of several parties is measured in all of them.
    """
    laps: dict[Member, dict[Lap, float]] = {}
    for number in range(rounds):
        for place, party in enumerate(parties):
            if not takes_part(party.turns, rounds, number):
                continue
            for member, calls in zip(party.members, party.run(at_least * len(party.members)), strict=True):
                found = laps.setdefault(member, {})
                found.update({Lap(place, number, lap): seconds for lap, seconds in enumerate(calls)})
            tick(number)
    return {member: summarize(found) for member, found in laps.items()}


def takes_part(turns: int, rounds: int, number: int) -> bool:
    """Whether one who has `turns` turns has one in this round."""
    return (number + 1) * turns // rounds > number * turns // rounds


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
