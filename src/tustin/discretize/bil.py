"""Bilinear (Tustin) transform: the trapezoidal rule for the state, s = (2/Δ)·(z−1)/(z+1) in the frequency domain."""

from math import inf

from torch import Tensor

from .base import Coefficients, Discretization


def _coefficients(delta: Tensor, z: Tensor) -> Coefficients:
    half = z / 2
    return (1 + half) / (1 - half), (delta / (1 - half),)


BIL = Discretization(
    name="bil",
    coefficients=_coefficients,
    alpha="(1 + z/2) / (1 − z/2)",
    betas=("Δ / (1 − z/2)",),
    order=1,
    held_order=2,
    exact_equilibrium=True,
    stable=(-inf, 0),
    source="paper, BIL",
)
