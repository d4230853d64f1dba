"""Zero-order hold: the exact solution when the input is constant over the step."""

from math import inf

from torch import Tensor

from .base import Coefficients, Discretization
from .phi import phi


def _coefficients(delta: Tensor, z: Tensor) -> Coefficients:
    return z.exp(), (delta * phi(1, z),)


ZOH = Discretization(
    name="zoh",
    coefficients=_coefficients,
    alpha="e^z",
    betas=("Δ·φ1(z)",),
    order=1,
    held_order=inf,
    exact_equilibrium=True,
    stable=(-inf, 0),
    source="paper, Eq. 2",
)
