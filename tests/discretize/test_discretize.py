"""`discretize(A, B, delta, discretization)`: the matrices users of Mamba ask for, in both forms."""

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from tests.systems import FORMS, system
from tests.tolerances import assert_close
from tustin import DISCRETIZATIONS, Discretization, selective_scan
from tustin.discretize import discretize, higher_order_hold

RULES = [*DISCRETIZATIONS.values(), higher_order_hold(5)]
each_rule = pytest.mark.parametrize("discretization", RULES, ids=lambda discretization: discretization.name)


def test_known_numbers() -> None:
    """The textbook case by hand: A = −2, B = 3, Δ = 0.5, so z = −1."""
    A, B = torch.tensor([-2.0]).double(), torch.tensor([3.0]).double()
    expected = {
        "mamba": (math.exp(-1), 1.5),
        "zoh": (math.exp(-1), 3 * (1 - math.exp(-1)) / 2),
        "bil": (1 / 3, 1.0),
        "rk4": (0.375, 0.9375),
    }
    for discretization, pair in expected.items():
        assert [float(x) for x in discretize(A, B, 0.5, discretization)] == pytest.approx(list(pair), rel=1e-14)
    assert [float(x) for x in discretize(A, B, 0.5)] == pytest.approx(list(expected["mamba"]), rel=1e-14)


@each_rule
def test_elementwise_form_broadcasts(discretization: Discretization) -> None:
    """A number, a 0-d tensor and a tensor of steps: Ā and every B̄ follow broadcasting, and agree with each other."""
    x = system(D=3, N=2, B="constant", dtype=torch.float64)
    A, B = x["A"], x["B"]
    by_number = discretize(A, B, 0.3, discretization)
    assert len(by_number) == 1 + discretization.taps
    assert all(x.shape == (3, 2) and x.dtype == torch.float64 for x in by_number)
    steps = torch.tensor([0.1, 0.3], dtype=torch.float64)
    for one, zero_d, many in zip(
        by_number,
        discretize(A, B, steps[1], discretization),
        discretize(A, B, steps.view(2, 1, 1, 1), discretization),  # four dimensions: not the form of the scan
        strict=True,
    ):
        assert torch.equal(one, zero_d)
        assert many.shape == (2, 1, 3, 2)
        assert_close(many[1, 0], one)


@pytest.mark.parametrize("form", FORMS)
@each_rule
def test_scan_form_and_recurrence_by_hand(discretization: Discretization, form: str) -> None:
    """h_k = Ā_k·h_{k−1} + Σ_j B̄_{j,k}·u_{k−j}, iterated by hand with the matrices, is what `selective_scan` runs."""
    x = system(2, 6, 7, 3, B=form, C="constant", dtype=torch.float64)
    A_bar, *B_bars = discretize(x["A"], x["B"], x["delta"], discretization)
    assert len(B_bars) == discretization.taps
    assert all(m.shape == (2, 6, 7, 3) for m in (A_bar, *B_bars))

    h, y = torch.zeros(2, 6, 3).double(), []
    for k in range(7):
        h = A_bar[:, :, k] * h
        for j, B_bar in enumerate(B_bars):
            if j <= k:
                h = h + B_bar[:, :, k] * x["u"][:, :, k - j, None]
        y.append((h * x["C"]).sum(-1))
    out, last = selective_scan(**x, discretization=discretization, backend="reference", return_last_state=True)
    assert_close(out, torch.stack(y, -1))
    assert_close(last if discretization.taps == 1 else last[..., 0], h)


def test_grouped_matrix_serves_neighbouring_channels() -> None:
    """Two groups over six channels: channels 0–2 read group 0, channels 3–5 read group 1."""
    x = system(2, 6, 5, 3, B="grouped", dtype=torch.float64)
    assert x["B"].shape[1] == 2
    _, grouped = discretize(x["A"], x["B"], x["delta"], "zoh")
    for channel in range(6):
        _, own = discretize(x["A"], x["B"][:, channel // 3], x["delta"], "zoh")
        assert torch.equal(grouped[:, channel], own[:, channel])


def test_four_dimensional_matrices_are_elementwise_unless_the_step_says_otherwise() -> None:
    """A rule of two samples delays B along time in the scan's form only: elsewhere no dimension is time."""
    A, B = (torch.linspace(low, high, 24, dtype=torch.float64).view(1, 2, 3, 4) for low, high in ((-3, 0), (-1, 2)))
    _, B0, B1 = discretize(A, B, 0.3, "true_foh")
    _, beta0, beta1 = discretize(A, torch.ones_like(B), 0.3, "true_foh")
    assert_close(B0, beta0 * B)
    assert_close(B1, beta1 * B)


def test_gradients_reach_every_argument() -> None:
    def matrices(A: Tensor, B: Tensor, delta: Tensor) -> tuple[Tensor, ...]:
        return discretize(A, B, delta, "pol")

    x = system(1, 2, 3, 2, B="grouped", dtype=torch.float64)
    assert torch.autograd.gradcheck(matrices, [x[name].requires_grad_() for name in ("A", "B", "delta")])


def test_mix_is_a_number_or_one_per_token() -> None:
    """λ = 0.25 in three spellings; at λ = 1 the older sample weighs nothing."""
    x = system(2, 3, 4, 2, B="constant", dtype=torch.float64)
    run = x["A"], x["B"], x["delta"], "exptrap"
    alpha, *number = discretize(*run, mix=0.25)
    for mix in (torch.tensor(0.25), torch.full((2, 3, 4), 0.25)):
        assert all(torch.equal(a, b) for a, b in zip(discretize(*run, mix=mix), (alpha, *number), strict=True))
    assert_close(number[0][:, :, 1:], 0.25 * x["delta"][:, :, 1:, None] * x["B"][None, :, None])
    assert not discretize(*run, mix=1)[2].any()


def test_mix_that_makes_no_sense() -> None:
    A = -torch.ones(1)
    with pytest.raises(ValueError, match="discretization 'zoh' has no λ"):
        discretize(A, A, 0.1, "zoh", mix=0.5)
    with pytest.raises(ValueError, match=r"mix must be between 0 and 1, got 1\.5"):
        discretize(A, A, 0.1, "exptrap", mix=1.5)
    with pytest.raises(TypeError, match="mix must be a tensor or a number, got str"):
        discretize(A, A, 0.1, "exptrap", mix="half")


def test_unknown_discretization() -> None:
    with pytest.raises(ValueError, match=r"unknown discretization 'zohh' \(did you mean 'zoh'\?\)"):
        discretize(-torch.ones(1), torch.ones(1), 0.1, "zohh")


def test_a_discretization_object_needs_no_registration() -> None:
    twin = dataclasses.replace(DISCRETIZATIONS["bil"], name="twin")
    assert torch.equal(
        discretize(-torch.ones(2), torch.ones(2), 0.1, twin)[1],
        discretize(-torch.ones(2), torch.ones(2), 0.1, "bil")[1],
    )
