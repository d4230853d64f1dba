"""The tests by sign flips against hand calculation, scipy and simulation."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from scipy import stats as scipy_stats

from tustin.study import signflips
from tustin.study.signflips import detectable_gain, equal_band, equivalence_test, holm, sign_flip_test


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([1.0], 1 / 2),
        ([-1.0], 1.0),
        ([0.0], 1.0),
        ([1.0, 2.0], 1 / 4),
        ([2.0, -1.0], 2 / 4),  # 3 and 1 of 3, 1, -1, -3
        ([3.0, 2.0, -1.0], 2 / 8),  # 6 and 4
        ([1.0, 1.0, -1.0], 4 / 8),  # 3, and 1 three times
        ([1.0, 0.0], 2 / 4),
        ([0.0, 0.0, 0.0], 1.0),
        ([4.0, 3.0, 2.0, 1.0], 1 / 16),
        ([4.0, 3.0, 2.0, -1.0], 2 / 16),
        ([-4.0, -3.0, -2.0, -1.0], 1.0),
    ],
)
def test_small_examples_by_hand(differences: list[float], p: float) -> None:
    assert sign_flip_test(differences) == p


def test_the_papers_p_value_of_foh_means_a_loss() -> None:
    """A one-sided p above one half cannot come with a gain."""
    generator = np.random.default_rng(1)
    for differences in generator.normal(size=(200, 6)):
        if sign_flip_test(differences.tolist()) > 0.5:
            assert differences.mean() < 0


@pytest.mark.parametrize("n", [2, 5, 8, 10])
def test_exact_p_values_are_those_of_scipy(n: int) -> None:
    generator = np.random.default_rng(n)
    for _ in range(3):
        discretization, baseline = generator.normal(0.3, 1, n), generator.normal(0, 1, n)
        theirs = scipy_stats.permutation_test(
            (discretization, baseline),
            lambda x, y, axis: np.mean(x - y, axis=axis),
            permutation_type="samples",
            alternative="greater",
            n_resamples=np.inf,
        )
        assert sign_flip_test((discretization - baseline).tolist()) == pytest.approx(theirs.pvalue, abs=1e-12)


def test_ties_that_rounding_parts_are_still_ties() -> None:
    """Accuracies are fractions of the same number of images; written as decimals they are no longer exact."""
    values = [100 * k / 297 for k in (283, 285, 281, 280, 286)]
    baseline = [100 * k / 297 for k in (281, 284, 282, 278, 285)]
    images = [2, 1, -1, 2, 1]
    by_hand = sum(sum(s * d for s, d in zip(signs, images, strict=True)) >= 5 for signs in product((1, -1), repeat=5))
    assert sign_flip_test([x - y for x, y in zip(values, baseline, strict=True)]) == by_hand / 32


def test_many_pairs_are_sampled_and_never_give_zero() -> None:
    n = signflips.EXACT_UP_TO + 1
    assert sign_flip_test([1.0] * n) == 1 / (1 + signflips.SAMPLED_PATTERNS)
    differences = np.random.default_rng(0).normal(0.2, 1, n).tolist()
    sampled = sign_flip_test(differences)
    assert sampled == sign_flip_test(differences)
    assert sampled == pytest.approx(np.mean(signflips._all_sums(differences) >= sum(differences)), abs=0.005)


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([0.0], 1 / 2),
        ([0.0, 0.0, 0.0], 1 / 8),
        ([0.5, -0.5], 1 / 4),  # 1.2 and 0.2 shifted one way, 0.2 and 1.2 the other
        ([0.7, 0.7], 1.0),  # at the end of the band: all shifted differences are 0
        ([0.9, 0.0], 3 / 4),  # −0.2 and 0.7: 0.5 is reached by 0.9, 0.5 and, with rounding, not by −0.5 and −0.9
        ([5.0, 5.0], 1.0),
    ],
)
def test_equivalence_by_hand(differences: list[float], p: float) -> None:
    expected = 2 / 4 if differences == [0.9, 0.0] else p
    assert equivalence_test(differences, 0.7) == expected
    assert equivalence_test([-difference for difference in differences], 0.7) == expected


def test_equivalence_is_scipys_of_the_shifted_differences() -> None:
    generator = np.random.default_rng(3)
    for _ in range(3):
        differences = generator.normal(0.1, 0.4, 8)
        ends = [
            scipy_stats.permutation_test(
                (shifted,), lambda x, axis: np.mean(x, axis=axis), permutation_type="samples", alternative="greater"
            ).pvalue
            for shifted in (0.7 + differences, 0.7 - differences)
        ]
        assert equivalence_test(differences.tolist(), 0.7) == pytest.approx(max(ends), abs=1e-12)


@pytest.mark.parametrize("end", [0.7, -0.7])
@pytest.mark.parametrize("std", [0.1, 0.3, 1.0])
def test_rate_of_false_claims_of_equality(end: float, std: float) -> None:
    """A true difference as large as the threshold is called equal in at most one study of twenty."""
    generator = np.random.default_rng(5)
    studies = generator.normal(end, std, (2000, 10)).tolist()
    rate = np.mean([equivalence_test(differences, 0.7) <= 0.05 for differences in studies])
    assert rate <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 2000)
    if std < 0.5:  # otherwise the other end of the band is in reach, and the test claims even less
        assert rate >= 0.03


def test_rate_of_studies_of_six_discretizations_with_any_false_claim_of_equality() -> None:
    generator = np.random.default_rng(6)
    values = generator.normal(95, 0.3, (1000, 6, 8))
    values[:, 1:] += 0.7
    any_claimed = [
        min(holm([equivalence_test(differences, 0.7) for differences in (runs[1:] - runs[0]).tolist()])) <= 0.05
        for runs in values
    ]
    assert np.mean(any_claimed) <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 1000)


@pytest.mark.parametrize(("n", "level"), [(8, 0.05), (10, 0.01)])
def test_equal_rules_are_called_equal_four_times_of_five(n: int, level: float) -> None:
    band = equal_band(1.0, n, level)
    assert band is not None
    generator = np.random.default_rng(n)
    found = np.mean([equivalence_test(generator.normal(0, 1, n).tolist(), band) <= level for _ in range(1000)])
    assert found == pytest.approx(signflips.POWER, abs=0.06)
    assert equal_band(1.0, 4, 0.05) is None


def test_rate_of_false_positives_over_null_studies() -> None:
    generator = np.random.default_rng(0)
    baseline = generator.normal(95, 1, (2000, 10))
    discretization = generator.normal(95, 1, (2000, 10))
    rate = np.mean([sign_flip_test(differences) <= 0.05 for differences in (discretization - baseline).tolist()])
    assert 0.03 <= rate <= 0.07


def test_rate_of_null_studies_of_six_discretizations_with_any_false_positive() -> None:
    """The rules share a baseline, so that their tests depend on each other; Holm's correction must still hold."""
    generator = np.random.default_rng(0)
    values = generator.normal(95, 1, (2000, 6, 8))
    any_shown = [
        min(holm([sign_flip_test(differences) for differences in (runs[1:] - runs[0]).tolist()])) <= 0.05
        for runs in values
    ]
    assert 0.01 <= np.mean(any_shown) <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 2000)


@pytest.mark.parametrize(
    ("p", "corrected"),
    [
        ([], []),
        ([0.3], [0.3]),
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),  # 4·0.005, 3·0.01, 2·0.03, and 0.04 not below 0.06
        ([0.5, 0.6], [1.0, 1.0]),
        ([0.02, 0.02], [0.04, 0.04]),
    ],
)
def test_holm_by_hand(p: list[float], corrected: list[float]) -> None:
    assert holm(p) == pytest.approx(corrected)


@pytest.mark.parametrize(("n", "level"), [(8, 0.05), (10, 0.05), (10, 0.01)])
def test_a_detectable_gain_is_detected_four_times_of_five(n: int, level: float) -> None:
    gain = detectable_gain(1.0, n, level)
    assert gain is not None
    generator = np.random.default_rng(n)
    found = np.mean([sign_flip_test(generator.normal(gain, 1, n).tolist()) <= level for _ in range(1500)])
    assert found == pytest.approx(signflips.POWER, abs=0.05)


def test_the_detectable_gain_is_the_formula() -> None:
    """Ten pairs can reach 51/1024, the largest multiple of 1/1024 below 0.05."""
    t = scipy_stats.t(9)
    assert detectable_gain(2.0, 10, 0.05) == pytest.approx((t.ppf(1 - 51 / 1024) + t.ppf(0.8)) * 2 / math.sqrt(10))
    assert detectable_gain(2.0, 4, 0.05) is None, "1/16 is above the level"
