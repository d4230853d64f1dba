"""First-order hold as the word is usually meant: the input is the straight line between two samples.

With v(t_{k−1} + s) = v_{k−1} + (v_k − v_{k−1})·s/Δ the step is exact, so a ramp is reproduced exactly.
"""

from math import inf

from torch import Tensor

from .base import Coefficients, Discretization
from .phi import phi


def _coefficients(delta: Tensor, z: Tensor) -> Coefficients:
    return z.exp(), (delta * phi(2, z), delta * (phi(1, z) - phi(2, z)))


TRUE_FOH = Discretization(
    name="true_foh",
    coefficients=_coefficients,
    alpha="e^z",
    betas=("Δ·φ2(z)", "Δ·(φ1(z) − φ2(z))"),
    order=2,
    held_order=1,
    exact_equilibrium=True,
    stable=(-inf, 0),
    source="input linear between samples",
)
