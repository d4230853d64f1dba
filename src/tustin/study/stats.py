"""What the runs of a study show: spreads, paired tests against the baseline, and a verdict for each rule.

Every formula is explained in docs/statistics.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from ..support.names import unknown
from ..train.metrics import METRICS, Metric
from .results import Plan, Result, Study
from .signflips import (
    ROUNDING,
    SEED,
    detectable_gain,
    equivalence_test,
    holm,
    sign_flip_test,
    smallest_p,
)

__all__ = [
    "Analysis",
    "Comparison",
    "Control",
    "DiscretizationSummary",
    "Spread",
    "Verdict",
    "analyse",
    "spread",
]

CONFIDENCE = 0.95
RESAMPLES = 9_999
STATE_AGAINST_THRESHOLD = 3
"""Where the state is worth less than so many thresholds, no rule has room to differ, and equality says nothing."""


class Verdict(StrEnum):
    """What the tests and the threshold say about a rule; EMPTY where the state itself is worth next to nothing."""

    ABOVE = "better, above threshold"
    SMALL = "better but small"
    EQUAL = "practically equal"
    EMPTY = "practically equal, but empty"
    WORSE = "worse"
    NOT_SHOWN = "not shown"
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
    p_equal: float | None
    """Of the equivalence test: that the difference is smaller than the threshold, in either direction."""
    p_equal_holm: float | None
    cohens_d: float | None
    """Of paired differences, d_z = mean / standard deviation; None where that is zero or unknown."""
    detectable: float | None
    """The gain that this test, with this spread, would show with a probability of `POWER`; None if no gain is."""
    verdict: Verdict

    @property
    def pairs(self) -> int:
        return len(self.seeds)


@dataclass(frozen=True)
class Control:
    """What the state is worth: the baseline against the same model without its state, over the seeds of both."""

    name: str
    seeds: tuple[int, ...]
    gains: tuple[float, ...]
    """Baseline minus control, one a seed; positive is what the state adds."""
    worth: Spread | None
    p: float | None
    """Of the one-sided sign-flip test: that it adds anything."""
    smallest: float
    """The worth below which a verdict of equality is empty."""

    @property
    def too_little(self) -> bool:
        """The state is worth so little that rules cannot differ by much."""
        return self.worth is not None and self.worth.mean < self.smallest


@dataclass(frozen=True)
class Analysis:
    """A study and all that follows from it."""

    study: Study
    metric: Metric
    discretizations: tuple[DiscretizationSummary, ...]
    """One for each rule, and the control behind them."""
    control: Control | None
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
    control = _control(study) if plan.control else None
    others = [name for name in plan.discretizations if name != plan.baseline]
    paired = {name: _paired_gains(study, name, plan.baseline) for name in others}
    return Analysis(
        study,
        METRICS[plan.metric],
        tuple(_summary(study, name) for name in plan.methods),
        control,
        _comparisons(paired, plan.level, plan.threshold, bool(control and control.too_little)),
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


def _paired_gains(study: Study, method: str, other: str) -> dict[int, float]:
    """Of each seed with which both have the metric: positive where the first is better."""
    plan = study.plan
    sign = 1 if METRICS[plan.metric].higher_is_better else -1
    values = {
        (result.discretization, result.seed): numbers_of(result)[plan.metric]
        for result in study.results
        if result.status == "done" and plan.metric in numbers_of(result)
    }
    return {
        seed: sign * (values[method, seed] - values[other, seed])
        for seed in plan.seeds
        if (method, seed) in values and (other, seed) in values
    }


def _control(study: Study) -> Control:
    plan = study.plan
    assert plan.control is not None
    gains = _paired_gains(study, plan.baseline, plan.control)
    return Control(
        plan.control,
        seeds=tuple(gains),
        gains=tuple(gains.values()),
        worth=spread(list(gains.values())),
        p=sign_flip_test(list(gains.values())) if gains else None,
        smallest=STATE_AGAINST_THRESHOLD * plan.threshold,
    )


def _comparisons(
    paired: dict[str, dict[int, float]], level: float, threshold: float, empty: bool
) -> tuple[Comparison, ...]:
    """All rules at once: what is significant depends on how many were tested."""
    gains = {name: tuple(paired[name].values()) for name in paired}
    tested = [name for name in gains if gains[name]]

    def of_each(test: Callable[[Sequence[float]], float]) -> tuple[dict[str, float], dict[str, float]]:
        """The p-value of each rule, and the same with Holm's correction."""
        p = [test(gains[name]) for name in tested]
        return dict(zip(tested, p, strict=True)), dict(zip(tested, holm(p), strict=True))

    p, p_holm = of_each(sign_flip_test)
    p_loss, p_loss_holm = of_each(lambda values: sign_flip_test([-value for value in values]))
    p_equal, p_equal_holm = of_each(lambda values: equivalence_test(values, threshold))
    _, best_possible = of_each(lambda values: smallest_p(len(values)))

    def verdict(name: str, mean: float) -> Verdict:
        if best_possible[name] > level:
            return Verdict.OPEN
        if p_holm[name] <= level:
            return Verdict.ABOVE if mean >= threshold * (1 - ROUNDING) else Verdict.SMALL
        if p_loss_holm[name] <= level:
            return Verdict.WORSE
        if p_equal_holm[name] <= level:
            return Verdict.EMPTY if empty else Verdict.EQUAL
        return Verdict.NOT_SHOWN

    def compared(name: str) -> Comparison:
        gain = spread(gains[name])
        return Comparison(
            name,
            seeds=tuple(paired[name]),
            gains=gains[name],
            gain=gain,
            p=p.get(name),
            p_holm=p_holm.get(name),
            p_loss=p_loss.get(name),
            p_loss_holm=p_loss_holm.get(name),
            p_equal=p_equal.get(name),
            p_equal_holm=p_equal_holm.get(name),
            cohens_d=gain.mean / gain.std if gain and gain.std else None,
            detectable=detectable_gain(gain.std, gain.n, level / len(tested)) if gain and gain.std else None,
            verdict=verdict(name, gain.mean) if gain else Verdict.OPEN,
        )

    return tuple(compared(name) for name in paired)
