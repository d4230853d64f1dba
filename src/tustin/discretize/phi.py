"""The φ-functions of exponential integrators, and all their derivatives, accurate everywhere.

    φ_0(z) = e^z        φ_{k+1}(z) = (φ_k(z) − 1/k!) / z        φ_k(0) = 1/k!

Written φ_k^(m) for the m-th derivative (docs/math.md derives both forms):

    |z| > 2:   z·φ_k^(m) = φ_{k−1}^(m) − m·φ_k^(m−1)   (− 1/(k−1)! when m = 0)
    |z| ≤ 2:   φ_k^(m)(z) = Σ_j  (j+m)! / (j! (j+m+k)!) · z^j

The usual identity φ_k' = φ_k − k·φ_{k+1} is exact on paper but cancels for large |z|; the recurrence does not.
"""

from math import factorial
from typing import Any

import torch
from torch import Tensor

from ..support.transforms import transformed
from .compact import compact_phi, is_recording

# Above 2 the k + m divisions by z of the recurrence shrink rounding errors; near 1 they add up (φ5'' lost 5 digits).
_SERIES_UP_TO = 2.0
_SERIES_TERMS = 26  # 2^26/26! < 2^-60: the series is exact to the last bit of a float64


def phi(k: int, z: Tensor) -> Tensor:
    """φ_k(z), elementwise; differentiable any number of times.

    It is computed in float64 and rounded once, so results in a smaller dtype are accurate to about the last bit.
    `compact.py` has the form for graphs that run elsewhere.
    """
    if k < 0:
        raise ValueError(f"phi: k must be 0 or more, got {k}")
    if not z.is_floating_point():
        raise TypeError(f"phi: z must be a real floating-point tensor, got {z.dtype}")
    if is_recording():
        return compact_phi(k, z)
    # A transform derives the formulas themselves: each recurrence below yields the one for the next m. The node gives
    # the same numbers, and keeps one tensor for the backward pass where the series would keep dozens.
    result: Tensor = _evaluate(k, 0, z.double()) if transformed() else _Phi.apply(z.double(), k, 0)
    return result.to(z.dtype)


class _Phi(torch.autograd.Function):
    """φ_k^(m) as a node whose derivative is again such a node, with m one higher."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, k: int, m: int) -> Tensor:
        ctx.save_for_backward(z)
        ctx.k, ctx.m = k, m
        return _evaluate(k, m, z)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (z,) = ctx.saved_tensors
        return grad * _Phi.apply(z, ctx.k, ctx.m + 1), None, None


def _evaluate(k: int, m: int, z: Tensor) -> Tensor:
    if k == 0:
        return z.exp()
    near = z.abs() <= _SERIES_UP_TO
    series = _series(k, m, z.where(near, 0.0))
    return torch.where(near, series, _recurrence(k, m, z.where(~near, 2 * _SERIES_UP_TO)))


def _series(k: int, m: int, z: Tensor) -> Tensor:
    total = torch.zeros_like(z)
    for j in reversed(range(_SERIES_TERMS)):
        total = total * z + factorial(j + m) / (factorial(j) * factorial(j + m + k))
    return total


def _recurrence(k: int, m: int, z: Tensor) -> Tensor:
    row = [z.exp()] * (m + 1)  # φ_0 and its derivatives
    for i in range(1, k + 1):
        above, row = row, [(row[0] - 1 / factorial(i - 1)) / z]
        for n in range(1, m + 1):
            row.append((above[n] - n * row[n - 1]) / z)
    return row[m]
