"""Which of two is faster, judged by the rounds in which both had their turn: their ratio in each, and its median.

A slow minute hits both sides of such a ratio. The interval of the median assumes nothing about how times are
distributed: if the true median were outside, nearly all rounds would have to lie on one side of it by chance, as coins
that show the same face.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
"""Of the intervals that are shown."""
ERROR = 0.01
"""Chance that any of the differences claimed for one size is none."""
SMALLEST_MARGIN = 0.01
"""Differences below this one are never claimed: another process may place its numbers better or worse."""


@dataclass(frozen=True)
class Ratio:
    """Time of one by time of the other: a value for each time that both had their turn."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        return median_interval(self.values, confidence)

    def inverse(self) -> Ratio:
        return Ratio(tuple(1 / value for value in self.values))

    def scaled(self, factor: float) -> Ratio:
        return Ratio(tuple(value * factor for value in self.values))


def paired(own: Mapping[int, Sequence[float]], other: Mapping[int, Sequence[float]]) -> Ratio | None:
    """The ratio of two series of calls by round; None if they share no round."""
    values = tuple(_in_round(own[number], other[number]) for number in own if number in other)
    return Ratio(values) if values else None


def _in_round(own: Sequence[float], other: Sequence[float]) -> float:
    """The median over the laps; of those who did not take the same laps, the ratio of the medians."""
    if len(own) != len(other):
        return statistics.median(own) / statistics.median(other)
    return statistics.median(mine / theirs for mine, theirs in zip(own, other, strict=True))


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


def noise(same: Ratio | None) -> float:
    """How far from 1 the ratio of a candidate to itself may seem to be; infinite if it is not known."""
    if same is None:
        return math.inf
    low, high = same.interval()
    return max(1 - low, high - 1)


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


def standing(series: Mapping[str, Mapping[int, Sequence[float]]], baseline: str, noise: float) -> Standing:
    """Ranked by the median ratio to the baseline; it must be among them."""
    to_baseline = {name: paired(own, series[baseline]) for name, own in series.items()}
    ranked = sorted((ratio.median, name) for name, ratio in to_baseline.items() if ratio)
    fastest = ranked[0][1]
    behind = {name: ratio for _, name in ranked[1:] if (ratio := paired(series[name], series[fastest]))}
    tied = {name for name, ratio in behind.items() if not beyond_noise(ratio, noise, len(behind))} | {fastest}
    runner_up = next(iter(behind), None)
    in_order = tuple(name for name in series if name in tied)
    return Standing(fastest, in_order, runner_up, behind[runner_up] if runner_up else None)
