"""A rule of two input samples, which the package does not have: proof that the contract needs no redesign for one."""

from math import inf

from torch import Tensor

from tustin import Discretization
from tustin.discretize import Coefficients, phi


def _coefficients(delta: Tensor, z: Tensor) -> Coefficients:
    return z.exp(), (delta * phi(2, z), delta * (phi(1, z) - phi(2, z)))


TRUE_FOH = Discretization(
    name="true_foh",
    coefficients=_coefficients,
    alpha="e^z",
    betas=("Δ·φ2(z)", "Δ·(φ1(z) − φ2(z))"),
    order=2,
    held_order=1,  # it draws a line where the input jumps
    exact_equilibrium=True,
    stable=(-inf, 0),
    source="input linear between samples",
)
