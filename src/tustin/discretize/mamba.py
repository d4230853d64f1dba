"""Mamba's rule: the exact decay, and Euler's step for the input.

What the code of Mamba, ViM and VMamba computes, whatever their papers print; their weights need it.
"""

from math import inf

from torch import Tensor

from .base import Coefficients, Discretization


def _coefficients(delta: Tensor, z: Tensor) -> Coefficients:
    return z.exp(), (delta,)


MAMBA = Discretization(
    name="mamba",
    coefficients=_coefficients,
    alpha="e^z",
    betas=("Δ",),
    order=1,
    held_order=1,
    exact_equilibrium=False,
    stable=(-inf, 0),
    source="Mamba's code",
)
