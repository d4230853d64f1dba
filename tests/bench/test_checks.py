"""Promises and verdicts: broken ones are admitted, and those that noise could change are called undecided."""

from dataclasses import replace

import pytest

from tests.bench.results import CELL, OPTIONS, made_up, seconds, timing
from tests.systems import FUSED
from tustin.bench.checks import LONG, check_all, check_texts
from tustin.bench.scan import Scans

GEMM = Scans(made_up()).limits["gemm"]


def test_checks_say_what_was_measured():
    checks = {check.claim: check for check in Scans(made_up()).checks()}
    assert len(checks) == 22
    measured = {claim: (check.measured, check.holds) for claim, check in checks.items()}
    assert measured["forward, mambapy : mamba"] == (100.0, True)
    assert measured["forward+backward, mambapy : mamba"] == (100.0, True)
    assert measured["GEMM FLOP/s : updates/s, mamba"] == (40.0, True)
    assert measured["GEMM FLOP/s : updates/s, mamba, stretch"] == (40.0, False)
    assert measured["GEMM FLOP/s : updates/s, bil"] == (25.0, True)
    assert measured["GEMM FLOP/s : updates/s, bil, stretch"] == (25.0, False)
    assert measured["forward, bil, rk4 : zoh"] == (1.0, True)
    assert checks["forward, bil, rk4 : zoh"].which == "rk4"
    assert measured["forward, foh, pol, hoh : zoh"] == (1.0, True)
    assert measured["forward, true_bil : bil"] == (2.0, False)
    assert measured["forward, one thread : two"] == (1.9, True)
    assert measured["forward+backward, time per token, L 6085 : 197"] == (1.0, True)
    assert measured["forward, bfloat16 : float32"] == (0.9, True)


@pytest.mark.parametrize(
    ("claim", "slow", "factor", "measured"),
    [
        ("forward, mambapy : mamba", CELL, 1.3, 76.9),
        ("forward+backward, mambapy : mamba", replace(CELL, backward=True), 2.1, 47.6),
        ("forward, bil, rk4 : zoh", replace(CELL, discretization="rk4"), 1.01, 1.01),
        ("forward, foh, pol, hoh : zoh", replace(CELL, discretization="pol"), 1.3, 1.3),
        ("forward+backward, foh, pol, hoh : zoh", replace(CELL, discretization="hoh", backward=True), 1.21, 1.21),
        ("forward, true_foh : zoh", replace(CELL, discretization="true_foh"), 1.26, 1.26),
        ("forward+backward, exptrap : mamba", replace(CELL, discretization="exptrap", backward=True), 1.2, 1.5),
        ("forward, one thread : two", replace(CELL, discretization="foh", threads=1), 0.9, 1.71),
        ("forward, time per token, L 6085 : 197", replace(CELL, discretization="zoh", L=LONG), 1.2, 1.2),
        ("forward+backward, bfloat16 : float32", replace(CELL, backward=True, dtype="bfloat16"), 1.2, 1.08),
    ],
)
def test_a_broken_promise_is_admitted(claim, slow, factor, measured):
    def find(cell):
        return timing(seconds(cell) * (factor if cell == slow else 1))

    checks = {check.claim: check for check in check_all(CELL, tuple(FUSED), find, GEMM)}
    assert checks[claim].measured == measured
    assert checks[claim].holds is False


def test_number_and_verdict_agree_after_rounding():
    def find(cell):
        return timing(seconds(cell) * (1.004 if cell.discretization == "rk4" else 1))

    checks = {check.claim: check for check in check_all(CELL, tuple(FUSED), find, GEMM)}
    check = checks["forward, bil, rk4 : zoh"]
    assert (check.measured, check.holds) == (1.0, True)


def test_a_verdict_that_noise_could_change_says_so():
    def find(cell):
        calls = (1.3, 1.0, 1.2, 0.9, 1.1, 1.3, 1.0) if cell.discretization == "pol" else (1.0,) * 7
        return timing(*(seconds(cell) * factor for factor in calls))

    checks = {check.claim: check for check in check_all(CELL, tuple(FUSED), find, GEMM)}
    broken = checks["forward, foh, pol, hoh : zoh"]
    assert (broken.measured, broken.interval, broken.which) == (1.1, (0.9, 1.3), "pol")
    assert (broken.holds, broken.decided) == (True, False)
    assert check_texts(broken) == ("≤ 1.25", "1.1 (pol)", "0.9 to 1.3", "undecided")
    assert check_texts(checks["forward, bil, rk4 : zoh"])[1:] == ("1 (rk4)", "1 to 1", "yes")


def test_what_was_not_measured_is_not_claimed():
    few = Scans(made_up(replace(OPTIONS, discretizations=("bil",), lengths=(197,))))
    checks = {check.claim: check for check in few.checks()}
    for claim in ("forward, mambapy : mamba", "forward, bil, rk4 : zoh", "forward, time per token, L 6085 : 197"):
        assert (checks[claim].measured, checks[claim].holds) == (None, None)
    assert checks["forward, one thread : two"].holds is True
    for other in (
        replace(OPTIONS, threads=1),
        replace(OPTIONS, dtype="bfloat16"),
        replace(OPTIONS, batch_sizes=(4,)),
        replace(OPTIONS, lengths=(64,)),
    ):
        assert Scans(made_up(other)).checks() == []
