"""The bilinear (Tustin) transform of state and input: the trapezoidal rule for both.

(h_k − h_{k−1})/Δ = A·(h_k + h_{k−1})/2 + (v_k + v_{k−1})/2, which is s = (2/Δ)·(z−1)/(z+1) in the frequency domain.
"""

from math import inf

from torch import Tensor

from .base import Coefficients, Discretization


def _coefficients(delta: Tensor, z: Tensor) -> Coefficients:
    half = z / 2
    beta = delta / 2 / (1 - half)
    return (1 + half) / (1 - half), (beta, beta)


TRUE_BIL = Discretization(
    name="true_bil",
    coefficients=_coefficients,
    alpha="(1 + z/2) / (1 − z/2)",
    betas=("(Δ/2) / (1 − z/2)", "(Δ/2) / (1 − z/2)"),
    order=2,
    held_order=1,
    exact_equilibrium=True,
    stable=(-inf, 0),
    source="Tustin's method",
)
