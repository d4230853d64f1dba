"""Time many things fairly: in turns, so that a slow minute of the machine hits all alike, and with medians."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Timing:
    """Seconds per call: the median, and the quartiles around it."""

    calls: int
    low: float
    median: float
    high: float
    rounds: dict[int, float] = field(default_factory=dict)
    """The median of each round."""

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, as a fraction of the median."""
        return (self.high - self.low) / 2 / self.median


def summarize(rounds: Mapping[int, Sequence[float]]) -> Timing:
    """The summary of single calls, by the round they were made in; of one call it is that call."""
    seconds = [call for calls in rounds.values() for call in calls]
    low, median, high = statistics.quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1 else seconds * 3
    return Timing(len(seconds), low, median, high, {n: statistics.median(calls) for n, calls in rounds.items()})


def ratio(own: Timing, other: Timing) -> float:
    """Time of one by time of the other: the median over the rounds that both took part in, so that a slow minute hits
    both; of their medians, if there is no such round."""
    both = [own.rounds[number] / other.rounds[number] for number in own.rounds if number in other.rounds]
    return statistics.median(both) if both else own.median / other.median


@dataclass
class Task:
    """Something that is timed in turns."""

    turn: Callable[[float], Sequence[float]]
    """Call it for that many seconds, and at least once: what each call took."""
    turns: int
    """In how many rounds it takes part."""
    seconds: dict[int, Sequence[float]] = field(default_factory=dict)
    """What each call took, by round."""


def in_turns(tasks: Sequence[Task], rounds: int, at_least: float, tick: Callable[[int], None]) -> None:
    """Let every task take its turn in every round; one with fewer turns than there are rounds, in evenly spread rounds.

    `tick` is called with the number of the round after every turn.
    """
    for number in range(rounds):
        for task in tasks:
            if takes_part(task.turns, rounds, number):
                task.seconds[number] = task.turn(at_least)
                tick(number)


def takes_part(turns: int, rounds: int, number: int) -> bool:
    """Whether one who has `turns` turns has one in this round."""
    return (number + 1) * turns // rounds > number * turns // rounds


def call_for(run: Callable[[], object], at_least: float, warm_up: bool, most: int = 50) -> list[float]:
    """What each call took, for `at_least` seconds of them and at least one."""
    if warm_up:
        run()
    seconds: list[float] = []
    end = time.perf_counter() + at_least
    while not seconds or (time.perf_counter() < end and len(seconds) < most):
        seconds.append(time_once(run))
    return seconds


def time_once(run: Callable[[], object]) -> float:
    """Seconds of one call; its result is freed after the clock has stopped."""
    start = time.perf_counter()
    result = run()
    seconds = time.perf_counter() - start
    del result
    return seconds
