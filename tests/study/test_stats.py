"""The statistics against hand calculation, scipy, simulation, and the paper's own numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tustin.report.paper_figures import PAPER
from tustin.study import stats
from tustin.study.signflips import sign_flip_test
from tustin.study.stats import Verdict, analyse, spread

from .studies import STUDIES, done, failed, plan, study, with_gains

PAPER_GAINS = {name: told.gain for name, told in (PAPER["cifar100"].gains or {}).items() if told.p == "< 0.001"}


@pytest.mark.parametrize(("discretization", "gain"), PAPER_GAINS.items())
def test_the_papers_gains_over_ten_seeds_that_all_improve(discretization: str, gain: float) -> None:
    spreads = np.linspace(0.2, 1.8, 10) * gain
    assert spreads.mean() == pytest.approx(gain)
    assert sign_flip_test(spreads.tolist()) == 1 / 1024
    comparison = analyse(with_gains(spreads.tolist(), discretization)).comparisons[0]
    assert comparison.p == comparison.p_holm == 1 / 1024
    assert comparison.gain is not None
    assert comparison.gain.mean == pytest.approx(gain)
    assert comparison.verdict == (Verdict.ABOVE if gain >= 0.7 else Verdict.SMALL)


# --- correction, interval, effect -------------------------------------------------------------------------------------


def test_spread_is_that_of_the_textbook() -> None:
    found = spread([1.0, 2.0, 4.0, 5.0])
    assert found is not None
    assert (found.n, found.mean) == (4, 3.0)
    assert found.std == pytest.approx(math.sqrt(10 / 3))
    assert found.low is not None
    assert found.high is not None
    assert 1.0 <= found.low < 3.0 < found.high <= 5.0
    assert found == spread([1.0, 2.0, 4.0, 5.0])


def test_interval_covers_the_mean_about_as_often_as_documented() -> None:
    """Nominally 95 %; with ten values a bootstrap interval is too narrow, and docs/statistics.md says so."""
    generator = np.random.default_rng(0)
    intervals = [spread(values) for values in generator.normal(size=(300, 10)).tolist()]
    covered = np.mean([found.low <= 0 <= found.high for found in intervals])
    assert 0.84 <= covered <= 0.96


def test_spread_of_little() -> None:
    assert spread([]) is None
    assert spread([3.0]) == stats.Spread(1, 3.0, None, None, None)
    assert spread([3.0, 3.0, 3.0]) == stats.Spread(3, 3.0, 0.0, 3.0, 3.0)
    assert spread([0.0, 0.0]) == stats.Spread(2, 0.0, 0.0, 0.0, 0.0)


def test_cohens_d_is_that_of_the_differences() -> None:
    gains = [1.0, 2.0, 4.0, 5.0, 3.0]
    found = analyse(with_gains(gains)).comparisons[0].cohens_d
    assert found == pytest.approx(3.0 / math.sqrt(2.5))


# --- a study ----------------------------------------------------------------------------------------------------------


def test_verdicts() -> None:
    found = {comparison.discretization: comparison for comparison in analyse(STUDIES["complete"]).comparisons}
    assert list(found) == ["foh", "bil", "pol", "hoh", "rk4"]
    assert found["hoh"].verdict == found["bil"].verdict == Verdict.ABOVE
    assert found["pol"].verdict == Verdict.SMALL
    assert found["rk4"].verdict == Verdict.EQUAL
    assert found["foh"].verdict == Verdict.WORSE
    assert found["foh"].gain is not None
    assert found["foh"].gain.high is not None
    assert found["foh"].gain.high < 0
    assert found["foh"].p == 1.0
    assert found["foh"].p_loss == 1 / 1024
    assert found["hoh"].p_holm == 5 / 1024
    assert all(comparison.pairs == 10 for comparison in found.values())


def test_a_gain_at_the_threshold_is_above_it() -> None:
    assert analyse(with_gains([0.7] * 6)).comparisons[0].verdict == Verdict.ABOVE
    assert analyse(with_gains([0.69] * 6)).comparisons[0].verdict == Verdict.SMALL
    assert analyse(with_gains([0.69] * 6, threshold=0.5)).comparisons[0].verdict == Verdict.ABOVE


def test_where_lower_is_better_a_lower_value_is_the_gain() -> None:
    lower = analyse(with_gains([-0.3, -0.2, -0.4, -0.3, -0.5, -0.3], metric="loss", threshold=0.1)).comparisons[0]
    assert min(lower.gains) > 0
    assert lower.p == 1 / 64
    assert lower.verdict == Verdict.ABOVE
    higher = analyse(with_gains([0.3, 0.2, 0.4, 0.3, 0.5, 0.3], metric="loss", threshold=0.1)).comparisons[0]
    assert higher.verdict == Verdict.WORSE


def test_the_level_is_a_parameter() -> None:
    gains = [1.0] * 6
    assert analyse(with_gains(gains, level=0.05)).comparisons[0].verdict == Verdict.ABOVE
    assert analyse(with_gains(gains, level=0.01)).comparisons[0].verdict == Verdict.OPEN, "1/64 cannot be below 0.01"


def test_pairs_are_seeds_with_which_both_finished() -> None:
    def run(discretization: str, seed: int):
        if (discretization, seed) in (("zoh", 1), ("bil", 2)):
            return None
        return failed(discretization, seed) if (discretization, seed) == ("bil", 3) else done(discretization, seed)

    found = analyse(study(plan(("zoh", "bil", "pol"), 10), run))
    bil, pol = found.comparisons
    assert bil.seeds == (0, 4, 5, 6, 7, 8, 9)
    assert pol.seeds == (0, 2, 3, 4, 5, 6, 7, 8, 9)
    assert bil.p == 1 / 2**7
    zoh, of_bil, _ = found.discretizations
    assert (zoh.done, zoh.failed, zoh.missing) == (9, 0, 1)
    assert (of_bil.done, of_bil.failed, of_bil.missing) == (8, 1, 1)
    assert of_bil.numbers["top1"].n == 8


def test_one_seed_concludes_nothing() -> None:
    found = analyse(study(plan(seeds=1)))
    assert {comparison.verdict for comparison in found.comparisons} == {Verdict.OPEN}
    assert all(comparison.p in (0.5, 1.0) for comparison in found.comparisons)
    assert all(comparison.detectable is None for comparison in found.comparisons)
    assert found.discretizations[0].numbers["top1"].std is None


def test_too_few_seeds_for_so_many_discretizations() -> None:
    """Six seeds give 1/64, and Holm's correction over five rules makes 0.08 of it."""
    assert {c.verdict for c in analyse(study(plan(seeds=6))).comparisons} == {Verdict.OPEN}
    assert Verdict.ABOVE in {c.verdict for c in analyse(study(plan(("zoh", "hoh", "bil"), 6))).comparisons}


def test_one_discretization_has_nothing_to_be_compared_with() -> None:
    found = analyse(study(plan(("zoh",))))
    assert found.comparisons == ()
    assert found.discretizations[0].numbers["top1"].n == 10


def test_a_baseline_that_never_finished_leaves_no_pairs() -> None:
    found = analyse(
        study(
            run=lambda discretization, seed: (
                failed(discretization, seed) if discretization == "zoh" else done(discretization, seed)
            )
        )
    )
    assert all(comparison.pairs == 0 and comparison.p is None for comparison in found.comparisons)
    assert {comparison.verdict for comparison in found.comparisons} == {Verdict.OPEN}
    assert found.discretizations[0].numbers == {}


def test_a_discretization_without_pairs_does_not_count_in_the_correction() -> None:
    found = analyse(study(plan(("zoh", "bil", "rk4"), 5), lambda m, s: failed(m, s) if m == "rk4" else done(m, s)))
    bil, rk4 = found.comparisons
    assert bil.p == bil.p_holm == 1 / 32
    assert rk4.p_holm is None


def test_equal_results_are_not_a_gain() -> None:
    found = analyse(with_gains([0.0] * 8)).comparisons[0]
    assert (found.p, found.cohens_d, found.detectable, found.verdict) == (1.0, None, None, Verdict.EQUAL)


def test_an_equal_gain_everywhere_has_no_effect_size() -> None:
    found = analyse(with_gains([0.28] * 8)).comparisons[0]
    assert found.gain is not None
    assert found.gain.std == 0.0
    assert found.cohens_d is None
    assert found.verdict == Verdict.SMALL


def test_a_small_gain_that_is_shown_is_no_equality() -> None:
    """Both tests succeed; the first says more."""
    found = analyse(with_gains([0.1, 0.12, 0.09, 0.11, 0.1, 0.13])).comparisons[0]
    assert found.p_equal == found.p == 1 / 64
    assert found.verdict == Verdict.SMALL
    assert analyse(with_gains([-0.1, -0.12, -0.09, -0.11, -0.1, -0.13])).comparisons[0].verdict == Verdict.WORSE


def test_what_the_state_is_worth() -> None:
    found = analyse(STUDIES["complete"])
    assert found.control is not None
    assert found.control.worth is not None
    assert found.control.worth.mean == pytest.approx(6, abs=0.2)
    assert (found.control.p, found.control.smallest, found.control.too_little) == (1 / 1024, pytest.approx(2.1), False)
    assert [summary.discretization for summary in found.discretizations] == [*found.plan.discretizations, "no_state"]
    assert "no_state" not in {comparison.discretization for comparison in found.comparisons}, "it is no rule"


def test_equality_is_empty_where_the_state_is_worth_little() -> None:
    found = analyse(STUDIES["equal, but empty"])
    assert found.control is not None
    assert found.control.worth is not None
    assert found.control.worth.mean == pytest.approx(1.2)
    assert found.comparisons[0].verdict == Verdict.EMPTY
    without = analyse(study(plan(("zoh", "rk4")), lambda name, seed: done(name, seed, 50.0)))
    assert without.control is None
    assert without.comparisons[0].verdict == Verdict.EQUAL


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown metric 'top2' \(did you mean 'top"):
        analyse(study(plan(metric="top2")))


def test_a_number_that_is_not_finite_is_no_result() -> None:
    found = analyse(study(plan(("zoh", "bil"), 6), lambda m, s: done(m, s, math.nan if (m, s) == ("bil", 0) else None)))
    assert found.comparisons[0].seeds == (1, 2, 3, 4, 5)
    assert found.discretizations[1].numbers["top1"].n == 5
