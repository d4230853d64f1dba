"""Times of calls that were made in turns, and which of two is faster: by their ratio wherever both had their turn.

A slow minute hits both sides of such a ratio. The interval of the median assumes nothing about how times are
distributed: if the true median were outside, nearly all ratios would have to lie on one side of it by chance, as coins
that show the same face.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple

CONFIDENCE = 0.95
"""Of the intervals that are shown."""
ERROR = 0.01
"""Chance that any of the differences claimed for one size is none."""
SMALLEST_MARGIN = 0.01
"""Differences below this one are never claimed: another process may place its numbers better or worse."""


class Lap(NamedTuple):
    """When a call was made: the calls of one lap of a party follow each other at once."""

    party: int
    round: int
    number: int


@dataclass(frozen=True)
class Timing:
    """Seconds of every call."""

    laps: Mapping[Lap, float]

    @cached_property
    def seconds(self) -> list[float]:
        return [*self.laps.values()]

    @cached_property
    def quartiles(self) -> list[float]:
        """With the median in the middle; of one call, that call."""
        return self._quantiles(4)

    @property
    def median(self) -> float:
        return self.quartiles[1]

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, as a fraction of the median."""
        low, median, high = self.quartiles
        return (high - low) / 2 / median

    @property
    def p95(self) -> float:
        """What 95 of 100 calls do not exceed."""
        return self._quantiles(20)[-1]

    def _quantiles(self, n: int) -> list[float]:
        several = len(self.seconds) > 1
        return statistics.quantiles(self.seconds, n=n, method="inclusive") if several else self.seconds * (n - 1)

    def facts(self) -> dict[str, Any]:
        """As plain data: the calls with their party, round and lap."""
        low, median, high = self.quartiles
        laps = [[*lap, seconds] for lap, seconds in self.laps.items()]
        return {"calls": len(laps), "low": low, "median": median, "high": high, "laps": laps}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Timing:
        """What `facts` told; ValueError or TypeError if it is anything else."""
        laps = {Lap(int(p), int(r), int(n)): float(seconds) for p, r, n, seconds in facts["laps"]}
        if not laps or not all(math.isfinite(seconds) and seconds > 0 for seconds in laps.values()):
            raise ValueError("a case needs laps, and their seconds must be positive")
        return cls(laps)


@dataclass(frozen=True)
class Ratio:
    """Time of one by time of the other: a value for each time that both had their turn."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        return median_interval(self.values, confidence)

    def facts(self) -> dict[str, float]:
        low, high = self.interval()
        return {"median": self.median, "low": low, "high": high}

    def text(self, decimals: int) -> str:
        """The median with its interval; a few laps have none."""
        low, high = self.interval()
        known = f" ({low:.{decimals}f} to {high:.{decimals}f})" if math.isfinite(high) else ""
        return f"{self.median:.{decimals}f}{known}"

    def inverse(self) -> Ratio:
        return Ratio(tuple(1 / value for value in self.values))

    def scaled(self, factor: float) -> Ratio:
        return Ratio(tuple(value * factor for value in self.values))


def lap_ratio(own: Timing | None, other: Timing | None) -> Ratio | None:
    """Time of one by time of the other, a value for each lap that both took part in; None if one was not measured.

    If there is no such lap, for each round; if there is none, of their medians.
    """
    if not own or not other:
        return None
    if values := tuple(seconds / other.laps[lap] for lap, seconds in own.laps.items() if lap in other.laps):
        return Ratio(values)
    return round_ratio(own, other) or Ratio((own.median / other.median,))


def round_ratio(own: Timing | None, other: Timing | None) -> Ratio | None:
    """Time of one by time of the other, a value for each round; None if they share no round.

    Within a round it is the median over the laps; of those who did not take the same laps, the ratio of the medians.
    """
    if not own or not other:
        return None
    theirs, values = _rounds(other), []
    for number, mine in _rounds(own).items():
        if mine.keys() == (same := theirs.get(number, {})).keys():
            values.append(statistics.median(mine[lap] / same[lap] for lap in mine))
        elif same:
            values.append(statistics.median(mine.values()) / statistics.median(same.values()))
    return Ratio(tuple(values)) if values else None


def _rounds(timing: Timing) -> dict[int, dict[Lap, float]]:
    rounds: dict[int, dict[Lap, float]] = {}
    for lap, seconds in timing.laps.items():
        rounds.setdefault(lap.round, {})[lap] = seconds
    return rounds


def median_interval(values: Sequence[float], confidence: float) -> tuple[float, float]:
    """From the k-th smallest to the k-th largest value, which misses the true median with

        2·P(Binomial(n, ½) < k) ≤ 1 − confidence;

    from 0 to infinity where not even the smallest and the largest of so few values are enough.
    """
    ordered, n = sorted(values), len(values)
    below, k = 0.0, 0
    while k < n // 2:
        below += math.comb(n, k) / 2**n
        if 2 * below > 1 - confidence:
            break
        k += 1
    return (ordered[k - 1], ordered[n - k]) if k else (0.0, math.inf)


def beyond_noise(ratio: Ratio, noise: float, comparisons: int) -> bool:
    """Whether a difference may be claimed: it is larger than the noise, and its interval excludes 1.

    The interval is wide enough for as many comparisons at once (Bonferroni's correction).
    """
    low, high = ratio.interval(1 - ERROR / comparisons)
    return (low > 1 or high < 1) and abs(ratio.median - 1) > max(SMALLEST_MARGIN, noise)


@dataclass(frozen=True)
class Standing:
    """Who is fastest among several."""

    fastest: str
    tied: tuple[str, ...]
    """All that cannot be told from the fastest, itself among them; alone, it has won."""
    runner_up: str | None
    margin: Ratio | None
    """Time of the runner-up by time of the fastest."""

    def facts(self) -> dict[str, Any]:
        return asdict(self) | {"margin": self.margin.facts() if self.margin else None}


def standing(series: Mapping[str, Timing], baseline: str, noise: float) -> Standing:
    """Ranked by the median ratio to the baseline; it must be among them."""
    to_baseline = {name: round_ratio(own, series[baseline]) for name, own in series.items()}
    ranked = sorted((ratio.median, name) for name, ratio in to_baseline.items() if ratio)
    fastest = ranked[0][1]
    behind = {name: ratio for _, name in ranked[1:] if (ratio := round_ratio(series[name], series[fastest]))}
    tied = {name for name, ratio in behind.items() if not beyond_noise(ratio, noise, len(behind))} | {fastest}
    runner_up = next(iter(behind), None)
    in_order = tuple(name for name in series if name in tied)
    return Standing(fastest, in_order, runner_up, behind[runner_up] if runner_up else None)
