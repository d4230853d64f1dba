"""The exponential-trapezoidal rule of Mamba-3: the exact decay, and the trapezoidal rule for the input's integral.

λ weighs the end of the step against its beginning. It may change from token to token: λ = ½ is the trapezoid, and of
second order; λ = 1 is `mamba`, to the bit.
"""

from math import inf

from torch import Tensor

from .base import Coefficients, Discretization


def _coefficients(delta: Tensor, z: Tensor, mix: Tensor) -> Coefficients:
    alpha = z.exp()
    return alpha, (mix * delta, (1 - mix) * delta * alpha)


EXPTRAP = Discretization(
    name="exptrap",
    coefficients=_coefficients,
    alpha="e^z",
    betas=("λ·Δ", "(1 − λ)·Δ·e^z"),
    order=2,
    held_order=1,
    exact_equilibrium=False,
    stable=(-inf, 0),
    source="Mamba-3",
    mixes=True,
)
