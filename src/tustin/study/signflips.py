"""Tests of paired differences by their signs, exact, the correction for many of them, and what they can show.

Every formula is explained in docs/statistics.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["detectable_gain", "equal_band", "equivalence_test", "holm", "sign_flip_test", "smallest_p"]

POWER = 0.8
EXACT_UP_TO = 20
"""Pairs; 2²⁰ sign patterns are a million sums."""
SAMPLED_PATTERNS = 99_999
SEED = 0
"""Of the sampling: the same results give the same report."""
ROUNDING = 1e-9
"""Sums of differences that are this close, relative to the differences, are equal: the accuracies behind them are."""


def sign_flip_test(differences: Sequence[float]) -> float:
    """The one-sided p-value of the mean: how often a random sign for each difference gives a sum at least as large.

    Under the hypothesis that a rule changes nothing, each difference could as well have had the other sign. All 2ⁿ
    patterns are counted up to `EXACT_UP_TO` differences, beyond that random ones and the observed one.
    """
    n = len(differences)
    at_least = math.fsum(differences) - ROUNDING * math.fsum(map(abs, differences))
    if n <= EXACT_UP_TO:
        return float(np.mean(_all_sums(differences) >= at_least))
    generator = np.random.default_rng(SEED)
    sums = np.zeros(SAMPLED_PATTERNS)
    for difference in differences:
        sums += difference * generator.choice((-1.0, 1.0), SAMPLED_PATTERNS)
    return float(1 + np.sum(sums >= at_least)) / (1 + SAMPLED_PATTERNS)


def equivalence_test(differences: Sequence[float], threshold: float) -> float:
    """The p-value of "the mean lies between −threshold and threshold": two one-sided tests, the larger of both.

    Under the hypothesis that the true difference is the threshold, each difference minus the threshold could as well
    have had the other sign; at the other end likewise. Equality is claimed only if both are refuted.
    """
    above = sign_flip_test([difference + threshold for difference in differences])
    below = sign_flip_test([threshold - difference for difference in differences])
    return max(above, below)


def _all_sums(differences: Sequence[float]) -> NDArray[np.float64]:
    """±d₁ ± d₂ ± … for all signs."""
    sums = np.zeros(1)
    for difference in differences:
        sums = np.concatenate([sums + difference, sums - difference])
    return sums


def smallest_p(pairs: int) -> float:
    """The p-value of differences that are all positive: no result can be more significant."""
    return 1 / 2**pairs if pairs <= EXACT_UP_TO else 1 / (1 + SAMPLED_PATTERNS)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: the i-th smallest of m, times m − i + 1, and never below the one before."""
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        corrected[i] = largest
    return corrected


def detectable_gain(std: float, pairs: int, level: float) -> float | None:
    """(t₁₋α + t_power)·s/√n with n − 1 degrees of freedom, at the largest α ≤ level that the test can reach."""
    return _reach(std, pairs, level, POWER)


def equal_band(std: float, pairs: int, level: float) -> float | None:
    """The threshold below which a difference of zero would be shown to lie with a probability of `POWER`.

    Both of two tests must succeed, and each may fail half as often: (t₁₋α + t₁₋₍₁₋power₎/₂)·s/√n.
    """
    return _reach(std, pairs, level, (1 + POWER) / 2)


def _reach(std: float, pairs: int, level: float, power: float) -> float | None:
    from scipy.stats import t

    step = smallest_p(pairs)
    alpha = math.floor(level / step * (1 + ROUNDING)) * step
    if not alpha or pairs < 2:
        return None
    return float((t.ppf(1 - alpha, pairs - 1) + t.ppf(power, pairs - 1)) * std / math.sqrt(pairs))
