"""Polynomial interpolation, the paper's closed form: zero-order hold plus half its first-order term."""

from math import inf

from torch import Tensor

from .base import Coefficients, Discretization
from .phi import phi


def _coefficients(delta: Tensor, z: Tensor) -> Coefficients:
    return z.exp(), (delta * phi(1, z) + delta**2 * phi(2, z) / 2,)


POL = Discretization(
    name="pol",
    coefficients=_coefficients,
    alpha="e^z",
    betas=("Δ·φ1(z) + ½Δ²·φ2(z)",),
    order=1,
    held_order=1,
    exact_equilibrium=False,
    stable=(-inf, 0),
    source="paper, POL",
)
