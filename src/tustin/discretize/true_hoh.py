"""Second-order hold: the input is the parabola through the last three samples, at their true times.

The samples v_k, v_{k−1}, v_{k−2} are Δ_k and Δ_{k−1} apart, so the weights depend on both steps, through their ratio
r = Δ_k/Δ_{k−1}. docs/math.md derives them; ψ = 2φ3 − φ2 is negative. They grow with r, because the parabola is then
extended far beyond the two older samples: Σ|β|/Δ = 1 + r²/(3(1 + r)) at z = 0. Where there is no step before, the
rule is `true_foh`, and so is its gradient: it jumps at Δ_{k−1} = 0 and has no derivative by it there.
"""

from math import inf

from torch import Tensor

from .base import RATIO, Coefficients, Discretization
from .phi import phi


def _coefficients(delta: Tensor, z: Tensor, earlier: tuple[Tensor, ...]) -> Coefficients:
    (before,) = earlier
    r = (delta / before.where(before != 0, 1.0)).where(before != 0, 0.0)
    bend = delta * (2 * phi(3, z) - phi(2, z)) * r
    newest = bend / (1 + r)
    return z.exp(), (delta * phi(2, z) + newest, delta * (phi(1, z) - phi(2, z)) - bend, newest * r)


TRUE_HOH = Discretization(
    name="true_hoh",
    coefficients=_coefficients,
    alpha="e^z",
    betas=("Δ·(φ2(z) + ψ(z)·r/(1 + r))", "Δ·(φ1(z) − φ2(z) − ψ(z)·r)", "Δ·ψ(z)·r²/(1 + r)"),
    order=3,
    held_order=1,
    exact_equilibrium=True,
    stable=(-inf, 0),
    source="input quadratic through three samples; r = Δ_k/Δ_{k−1}",
    steps=2,
    largest_weight=1 + RATIO**2 / (3 * (1 + RATIO)),
)
