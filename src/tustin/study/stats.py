"""What the runs of a study show: spreads, paired tests against the baseline, and a verdict for each rule.

Every formula is explained in docs/statistics.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from ..support.names import unknown
from ..train.metrics import METRICS, Metric
from .results import Plan, Result, Study

__all__ = [
    "Analysis",
    "Comparison",
    "DiscretizationSummary",
    "Spread",
    "Verdict",
    "analyse",
    "holm",
    "sign_flip_test",
    "spread",
]

CONFIDENCE = 0.95
POWER = 0.8
RESAMPLES = 9_999
EXACT_UP_TO = 20
"""Pairs; 2²⁰ sign patterns are a million sums."""
SAMPLED_PATTERNS = 99_999
SEED = 0
"""Of the resampling: the same results give the same report."""
ROUNDING = 1e-9
"""Sums of differences that are this close, relative to the differences, are equal: the accuracies behind them are."""


class Verdict(StrEnum):
    """What the test and the threshold say about a rule."""

    ABOVE = "significant and above threshold"
    SMALL = "significant but small"
    NOT_SHOWN = "not shown"
    WORSE = "significantly worse"
    OPEN = "cannot be concluded"


@dataclass(frozen=True)
class Spread:
    """Some numbers: how many, their mean, their standard deviation and a bootstrap interval for the mean."""

    n: int
    mean: float
    std: float | None
    """With n − 1 in the denominator; None for a single number, as are the ends of the interval."""
    low: float | None
    high: float | None


@dataclass(frozen=True)
class DiscretizationSummary:
    """The runs of one rule."""

    discretization: str
    planned: int
    failed: int
    missing: int
    numbers: dict[str, Spread]
    """Of the metrics at the best epoch, and of when that was and how long training took, see `numbers_of`."""

    @property
    def done(self) -> int:
        return self.planned - self.failed - self.missing


@dataclass(frozen=True)
class Comparison:
    """A rule against the baseline, over the seeds with which both finished."""

    discretization: str
    seeds: tuple[int, ...]
    gains: tuple[float, ...]
    """Rule minus baseline, one a seed, or baseline minus rule where lower is better: positive is always better."""
    gain: Spread | None
    p: float | None
    """Of the one-sided sign-flip test for a gain."""
    p_holm: float | None
    p_loss: float | None
    """Of the same test for a loss, corrected over the rules in its own right."""
    p_loss_holm: float | None
    cohens_d: float | None
    """Of paired differences, d_z = mean / standard deviation; None where that is zero or unknown."""
    detectable: float | None
    """The gain that this test, with this spread, would show with a probability of `POWER`; None if no gain is."""
    verdict: Verdict

    @property
    def pairs(self) -> int:
        return len(self.seeds)


@dataclass(frozen=True)
class Analysis:
    """A study and all that follows from it."""

    study: Study
    metric: Metric
    discretizations: tuple[DiscretizationSummary, ...]
    comparisons: tuple[Comparison, ...]
    """One for each rule but the baseline, in the order of the plan."""

    @property
    def plan(self) -> Plan:
        return self.study.plan


def analyse(study: Study) -> Analysis:
    """Summarise each rule, and compare it with the baseline on the metric of the plan."""
    plan = study.plan
    if plan.metric not in METRICS:
        raise ValueError(unknown("metric", plan.metric, list(METRICS)))
    metric = METRICS[plan.metric]
    return Analysis(
        study,
        metric,
        tuple(_summary(study, discretization) for discretization in plan.discretizations),
        _comparisons(
            {
                discretization: _paired_gains(study, discretization)
                for discretization in plan.discretizations
                if discretization != plan.baseline
            },
            plan.level,
            plan.threshold,
        ),
    )


# --- one sample -------------------------------------------------------------------------------------------------------


def spread(values: Sequence[float]) -> Spread | None:
    """Mean, standard deviation and BCa bootstrap interval; None of nothing."""
    if not values:
        return None
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return Spread(1, mean, None, None, None)
    if _all_equal(values):
        return Spread(len(values), mean, 0.0, mean, mean)
    from scipy.stats import bootstrap

    found = bootstrap(
        (np.asarray(values),),
        np.mean,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="BCa",
        rng=np.random.default_rng(SEED),
    ).confidence_interval
    return Spread(len(values), mean, float(np.std(values, ddof=1)), float(found.low), float(found.high))


def _all_equal(values: Sequence[float]) -> bool:
    return float(np.ptp(values)) <= ROUNDING * float(np.max(np.abs(values)))


# --- the test ---------------------------------------------------------------------------------------------------------


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
    from scipy.stats import t

    step = smallest_p(pairs)
    alpha = math.floor(level / step * (1 + ROUNDING)) * step
    if not alpha:
        return None
    return float((t.ppf(1 - alpha, pairs - 1) + t.ppf(POWER, pairs - 1)) * std / math.sqrt(pairs))


# --- a study ----------------------------------------------------------------------------------------------------------


def _summary(study: Study, discretization: str) -> DiscretizationSummary:
    runs = [result for result in study.results if result.discretization == discretization]
    done = [result for result in runs if result.status == "done"]
    names = dict.fromkeys(name for result in done for name in numbers_of(result))
    found = {
        name: spread([value for result in done if (value := numbers_of(result).get(name)) is not None])
        for name in names
    }
    return DiscretizationSummary(
        discretization,
        planned=len(study.plan.seeds),
        failed=len(runs) - len(done),
        missing=len(study.plan.seeds) - len(runs),
        numbers={name: value for name, value in found.items() if value is not None},
    )


def numbers_of(result: Result) -> dict[str, float]:
    """All that a finished run is measured by; a number that is not finite is left out."""
    numbers = {
        **result.metrics,
        "best_epoch": result.best_epoch,
        "best_update": result.best_update,
        "train_seconds": result.train_seconds,
        "cpu_seconds": result.cpu_seconds,
        "samples_per_second": result.samples_per_second,
    }
    return {name: float(value) for name, value in numbers.items() if value is not None and math.isfinite(value)}


def _paired_gains(study: Study, discretization: str) -> dict[int, float]:
    """Of each seed with which both the rule and the baseline have the metric."""
    plan = study.plan
    sign = 1 if METRICS[plan.metric].higher_is_better else -1
    values = {
        (result.discretization, result.seed): numbers_of(result)[plan.metric]
        for result in study.results
        if result.status == "done" and plan.metric in numbers_of(result)
    }
    return {
        seed: sign * (values[discretization, seed] - values[plan.baseline, seed])
        for seed in plan.seeds
        if (discretization, seed) in values and (plan.baseline, seed) in values
    }


def _comparisons(paired: dict[str, dict[int, float]], level: float, threshold: float) -> tuple[Comparison, ...]:
    """All rules at once: what is significant depends on how many were tested."""
    tested = [discretization for discretization, gains in paired.items() if gains]
    gains = {discretization: tuple(paired[discretization].values()) for discretization in paired}
    p = _of_each(tested, (sign_flip_test(gains[discretization]) for discretization in tested))
    p_loss = _of_each(tested, (sign_flip_test([-gain for gain in gains[discretization]]) for discretization in tested))
    p_holm = _of_each(tested, holm(list(p.values())))
    p_loss_holm = _of_each(tested, holm(list(p_loss.values())))
    best_possible = _of_each(tested, holm([smallest_p(len(gains[discretization])) for discretization in tested]))

    def verdict(discretization: str, mean: float) -> Verdict:
        if best_possible[discretization] > level:
            return Verdict.OPEN
        if p_holm[discretization] <= level:
            return Verdict.ABOVE if mean >= threshold * (1 - ROUNDING) else Verdict.SMALL
        return Verdict.WORSE if p_loss_holm[discretization] <= level else Verdict.NOT_SHOWN

    def compared(discretization: str) -> Comparison:
        gain = spread(gains[discretization])
        return Comparison(
            discretization,
            seeds=tuple(paired[discretization]),
            gains=gains[discretization],
            gain=gain,
            p=p.get(discretization),
            p_holm=p_holm.get(discretization),
            p_loss=p_loss.get(discretization),
            p_loss_holm=p_loss_holm.get(discretization),
            cohens_d=gain.mean / gain.std if gain and gain.std else None,
            detectable=detectable_gain(gain.std, gain.n, level / len(tested)) if gain and gain.std else None,
            verdict=verdict(discretization, gain.mean) if gain else Verdict.OPEN,
        )

    return tuple(compared(discretization) for discretization in paired)


def _of_each(discretizations: Sequence[str], values: Iterable[float]) -> dict[str, float]:
    return dict(zip(discretizations, values, strict=True))
