"""Honest statistics: ratios where both had their turn, intervals that are true, and ties. No test looks at a clock."""

import math

import pytest
import torch

from tests.bench.models import of_rounds
from tests.bench.results import laps
from tustin.report.timing import Ratio, Timing, beyond_noise, lap_ratio, median_interval, round_ratio, standing


def test_summary_is_the_median_and_the_quartiles():
    calls = laps(5.0, 1.0, 3.0) | laps(2.0, 4.0, round=2)
    assert Timing(calls).quartiles == [2.0, 3.0, 4.0]
    assert Timing(calls).facts()["calls"] == 5
    assert Timing(laps(7.0)).quartiles == [7.0, 7.0, 7.0]
    assert Timing(laps(1.0, 100.0, 1.0)).median == 1.0
    assert Timing(laps(1.0, 2.0, 4.0, 5.0, 9.0)).spread == 0.375


def test_what_slows_a_lap_down_hits_both_sides_of_a_ratio():
    own = Timing(laps(1.0, 9.0, 1.0))
    other = Timing(laps(2.0, 18.0, 2.2) | laps(50.0, round=1))
    assert lap_ratio(other, own).values == (2.0, 2.0, 2.2)


def test_without_common_laps_it_is_the_round_and_without_these_everything():
    own = Timing(laps(1.0, 1.0, 7.0) | laps(9.0, round=1))
    apart = Timing(laps(3.0, 2.0, 4.0, party=1) | laps(18.0, party=1, round=1))
    assert lap_ratio(apart, own).values == (3.0, 2.0)
    assert lap_ratio(Timing(laps(12.0, party=1, round=7)), own).values == (3.0,)


@pytest.mark.parametrize(("n", "confidence", "k"), [(6, 0.95, 1), (12, 0.95, 3), (18, 0.99, 4), (14, 0.998, 2)])
def test_the_interval_of_a_median_is_the_one_of_the_textbook(n, confidence, k):
    assert median_interval(range(n, 0, -1), confidence) == (k, n + 1 - k)


def test_the_interval_misses_the_median_as_rarely_as_it_says():
    samples = torch.distributions.Exponential(1.0).sample  # as lopsided as times are
    torch.manual_seed(0)
    missed = 0
    for _ in range(2000):
        low, high = median_interval(samples((12,)).tolist(), 0.95)
        missed += not low <= math.log(2) <= high
    assert 0.02 < missed / 2000 < 0.055  # 0.0386 for the third smallest of twelve


def test_too_few_rounds_know_nothing():
    assert median_interval([1.0, 1.1], 0.95) == (0.0, math.inf)
    assert not beyond_noise(Ratio((2.0, 2.0, 2.0)), noise=0.0, comparisons=1)


def test_ratios_are_formed_within_a_round():
    own, other = {0: [1.0, 9.0, 2.0], 1: [40.0], 3: [8.0]}, {0: [1.0], 1: [20.0], 2: [5.0]}
    assert round_ratio(of_rounds(own), of_rounds(other)) == Ratio((2.0, 2.0))
    assert round_ratio(of_rounds({0: [1.0]}), of_rounds({1: [1.0]})) is None
    assert round_ratio(of_rounds({0: [1.0, 9.0, 4.0]}), of_rounds({0: [2.0, 18.0, 1.0]})) == Ratio((0.5,))
    assert round_ratio(of_rounds({0: [1.0]}), None) is None


def series(cost: float, rounds: int = 16, wobble: float = 0.003) -> Timing:
    """Rounds that drift far more than anything differs by."""
    return of_rounds(
        {n: [cost * (1 + 0.3 * n) * (1 + wobble * ((7 * n + int(1000 * cost)) % 5 - 2) / 2)] for n in range(rounds)}
    )


def test_a_clear_winner_is_called_one():
    found = standing({"zoh": series(1.0), "bil": series(0.95), "rk4": series(0.98)}, "zoh", noise=0.005)
    assert (found.fastest, found.tied, found.runner_up) == ("bil", ("bil",), "rk4")
    assert found.margin.median == pytest.approx(0.98 / 0.95, rel=0.01)


def test_a_winner_within_noise_is_called_a_tie():
    close = {"zoh": series(1.0), "rk4": series(0.953), "bil": series(0.95)}
    found = standing(close, "zoh", noise=0.005)
    assert found.tied == ("rk4", "bil")  # in their own order, whoever was faster by a hair
    assert standing(close | {"rk4": series(0.98)}, "zoh", noise=0.1).tied == ("zoh", "rk4", "bil")
    assert standing({"zoh": series(1.0, 4), "bil": series(0.5, 4)}, "zoh", noise=0.0).tied == ("zoh", "bil")


def test_one_rule_alone_has_no_runner_up():
    found = standing({"zoh": series(1.0)}, "zoh", noise=0.0)
    assert (found.tied, found.runner_up, found.margin) == (("zoh",), None, None)


def test_one_round_that_contradicts_is_forgiven_but_not_many():
    ratio = Ratio((1.05,) * 15 + (0.9,))
    assert beyond_noise(ratio, noise=0.0, comparisons=5)
    assert not beyond_noise(Ratio((1.05,) * 13 + (0.9,) * 3), noise=0.0, comparisons=5)
    assert not beyond_noise(Ratio((1.009,) * 16), noise=0.0, comparisons=1)  # below one percent, however often


def test_the_same_difference_is_claimed_again_and_no_other():
    """Two runs with other noise: what one claims, the other does not contradict."""
    for seed in range(20):
        torch.manual_seed(seed)
        claims = []
        for _ in range(2):
            made = {
                name: of_rounds({n: [cost * (1 + 0.02 * torch.randn(()).item())] for n in range(16)})
                for name, cost in (("zoh", 1.0), ("foh", 1.0), ("bil", 0.93))
            }
            claims.append(standing(made, "zoh", noise=0.01).tied)
        winners = {tied for tied in claims if len(tied) == 1}
        assert winners <= {("bil",)}


def test_what_95_of_100_do_not_exceed():
    assert Timing(laps(*range(101))).p95 == 95
    assert Timing(laps(7.0)).p95 == 7.0
