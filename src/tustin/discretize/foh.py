"""First-order hold as the paper prints it: B̄ = A⁻²(e^{AΔ} − I − AΔ)B.

This is the weight of the input's *slope*, with the term for its level left out: it vanishes as Δ², so the rule
does not tend to the continuous system. docs/paper.md says more; a true first-order hold needs two samples.
"""

from math import inf

from torch import Tensor

from .base import Coefficients, Discretization
from .phi import phi


def _coefficients(delta: Tensor, z: Tensor) -> Coefficients:
    return z.exp(), (delta**2 * phi(2, z),)


FOH = Discretization(
    name="foh",
    coefficients=_coefficients,
    alpha="e^z",
    betas=("Δ²·φ2(z)",),
    order=0,
    held_order=0,
    exact_equilibrium=False,
    stable=(-inf, 0),
    source="paper, FOH",
)
