"""Every coefficient and its derivatives, to the last digits, against mpmath."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.discretize import judge
from tests.tolerances import DERIVATIVES, VALUES
from tustin import DISCRETIZATIONS
from tustin.discretize import phi

DTYPES = (torch.float32, torch.float64)
SPECIAL = (-0.35, -1.0, -1.1, -2.0, -2.2, float(judge.Z_STAR), float(judge.Z_LEFT), -80.0)
"""Seams of the evaluation, zeros of a coefficient or derivative, the end of the range."""
CROSSINGS = {
    ("rk4", "∂α/∂z"): float(judge.Z_STAR),
    ("rk4_raw", "∂α/∂z"): float(judge.Z_STAR),
    ("rk4_raw", "β"): float(judge.Z_LEFT),
    ("rk4_raw", "∂β/∂Δ"): float(judge.Z_LEFT),
}
"""Where a quantity changes sign away from a floating-point number, and so has no relative accuracy to offer."""


def grid(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """All pairs of Δ in {0} ∪ [1e-8, 10] and z in [−80, 0], numbers of that dtype, special points and neighbours."""
    kind = np.float32 if dtype == torch.float32 else np.float64
    special = np.array(SPECIAL, dtype=kind)
    z = np.concatenate([[0, -1e-30], -np.geomspace(1e-10, 80, 200), *_neighbours(special)]).astype(kind)
    delta = np.array([0, 1e-8, 1e-6, 1e-4, 1e-3, 0.01, 0.1, 0.7, 1, 3, 10], dtype=kind)
    z = np.unique(z[z >= -80])
    pairs = np.meshgrid(delta, z, indexing="ij")
    return torch.from_numpy(pairs[0]), torch.from_numpy(pairs[1])


def _neighbours(z: np.ndarray) -> list[np.ndarray]:
    near = [z * (1 + s) for s in (-1e-3, -1e-5, 1e-5, 1e-3)]
    return [z, np.nextafter(z, z.dtype.type(0)), np.nextafter(z, z.dtype.type(-100)), *near]


def computed(discretization: str, delta: Tensor, z: Tensor) -> dict[str, Tensor]:
    """α, β and their partial derivatives, with Δ and z as independent variables."""
    delta, z = delta.clone().requires_grad_(), z.clone().requires_grad_()
    earlier = (delta.detach() / judge.RATIO,) if DISCRETIZATIONS[discretization].steps > 1 else ()
    alpha, betas = DISCRETIZATIONS[discretization](delta, z, earlier=earlier, mix=float(judge.MIX))

    def partial(of: Tensor, by: Tensor) -> Tensor:
        if not of.requires_grad:
            return torch.zeros_like(by)
        (grad,) = torch.autograd.grad(of.sum(), by, retain_graph=True, allow_unused=True, materialize_grads=True)
        return grad

    found = {"α": alpha.detach(), "∂α/∂z": partial(alpha, z)}
    for j, weight in enumerate(betas):
        beta = f"β{j or ''}"
        found |= {beta: weight.detach(), f"∂{beta}/∂z": partial(weight, z), f"∂{beta}/∂Δ": partial(weight, delta)}
    return found


def relative_error(got: float, expected: float, slack: float = 0.0) -> float:
    missed = max(abs(got - expected) - slack, 0.0)
    return missed / abs(expected) if expected else math.inf if missed else 0.0


def slack_at_crossing(discretization: str, name: str, delta: float, z: float) -> float:
    """How much a change of z by two units in the last place moves a quantity that is about to change sign.

    Near its zero no double-precision formula is right to 1e-12 of itself: rounding z/3 alone moves the zero. What
    can be asked is that the result be the exact one for a z within two such units of the given one.
    """
    crossing = CROSSINGS.get((discretization, name))
    if crossing is None or abs(z / crossing - 1) > 2e-3:
        return 0.0
    here = judge.quantity(discretization, name, delta, z)
    return max(abs(judge.quantity(discretization, name, delta, z + s * 2 * math.ulp(z)) - here) for s in (-1, 1))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("discretization", DISCRETIZATIONS)
def test_every_coefficient_and_derivative_matches_mpmath(discretization: str, dtype: torch.dtype) -> None:
    """α, β, ∂α/∂z, ∂β/∂z, ∂β/∂Δ on a dense grid, z taken as exactly the number given; prints the worst case."""
    delta, z = grid(dtype)
    if DISCRETIZATIONS[discretization].taps > 1:  # as many numbers as of the others; the special points are all there
        kept = sorted({*range(0, z.shape[1], 4), *((z[0] == s).nonzero().item() for s in z.new_tensor(SPECIAL))})
        delta, z = delta[::2, kept], z[::2, kept]
    pairs = list(zip(delta.flatten().tolist(), z.flatten().tolist(), strict=True))
    for name, values in computed(discretization, delta, z).items():
        assert values.dtype == dtype
        tolerance = (DERIVATIVES if "∂" in name else VALUES)[dtype]
        worst = (-1.0, "")
        for (d, x), got in zip(pairs, values.expand_as(z).flatten().tolist(), strict=True):
            if "α" in name and d != pairs[-1][0]:
                continue  # α knows no Δ: once is enough
            expected = judge.quantity(discretization, name, d, x)
            slack = slack_at_crossing(discretization, name, d, x) if dtype == torch.float64 else 2.0**-149  # subnormal
            error = relative_error(got, expected, slack)
            worst = max(worst, (error, f"z = {x!r}, Δ = {d!r}: got {got!r}, expected {expected!r}"))
        print(f"{discretization} {name} {dtype}: worst relative error {worst[0]:.2e} at {worst[1]}")
        assert worst[0] <= tolerance, (
            f"{name} of {discretization} in {dtype} is off by {worst[0]:.2e} relative, allowed {tolerance:.0e}, "
            f"at {worst[1]}"
        )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("k", range(6))
def test_phi_and_its_first_two_derivatives_match_mpmath(k: int, dtype: torch.dtype) -> None:
    """φ_0 … φ_5 and, by differentiating twice, φ_k' and φ_k''."""
    z = grid(dtype)[1][0].clone().requires_grad_()
    value = phi(k, z)
    (first,) = torch.autograd.grad(value.sum(), z, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), z)
    for m, values in enumerate((value, first, second)):
        tolerance = (DERIVATIVES if m else VALUES)[dtype]
        errors = [
            (relative_error(got, float(judge.phi(k, judge.mp.mpf(x), m))), f"z = {x!r}, got {got!r}")
            for x, got in zip(z.tolist(), values.tolist(), strict=True)
        ]
        worst = max(errors)
        print(f"φ_{k}^({m}) {dtype}: worst relative error {worst[0]:.2e} at {worst[1]}")
        assert worst[0] <= tolerance, f"φ_{k}^({m}) in {dtype} is off by {worst[0]:.2e}, at {worst[1]}"


def test_judge_knows_every_discretization() -> None:
    """No rule of ours escapes the comparison, and the judge's z* and interval are the ones the rules use."""
    assert set(judge.ALPHA) == set(judge.BETA) == set(DISCRETIZATIONS)
    for name, rule in DISCRETIZATIONS.items():
        assert 1 + len(judge.EARLIER.get(name, ())) == rule.taps
    assert DISCRETIZATIONS["rk4_raw"].stable[0] == float(judge.Z_LEFT)


def test_judge_agrees_with_the_definition() -> None:
    """The judge itself: φ_{k+1} = (φ_k − 1/k!)/z and φ_k' = φ_k − k·φ_{k+1}, to 30 digits, and φ_k(0) = 1/k!."""
    mp = judge.mp
    for k in range(1, 6):
        assert mp.almosteq(judge.phi(k, mp.mpf(0)), 1 / mp.factorial(k))
        for z in (mp.mpf(-3) / 7, mp.mpf(-40)):
            below = judge.phi(k - 1, z)
            assert abs(judge.phi(k, z) * z - (below - 1 / mp.factorial(k - 1))) < mp.mpf(10) ** -30
            slope = judge.phi(k, z) - k * judge.phi(k + 1, z)
            assert abs(judge.phi(k, z, 1) - slope) < mp.mpf(10) ** -30


def test_phi_refuses_what_it_cannot_do() -> None:
    with pytest.raises(ValueError, match="k must be 0 or more, got -1"):
        phi(-1, torch.zeros(1))
    with pytest.raises(TypeError, match=r"z must be a real floating-point tensor, got torch\.int64"):
        phi(1, torch.zeros(1, dtype=torch.int64))
