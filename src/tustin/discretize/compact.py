"""The φ-functions in few operations of one precision, for a formula that is recorded and then runs elsewhere.

`phi` computes in float64, by a series of 26 terms. A graph of such a formula would be long, and slow or refused where
float64 is. Inside `recording()` it is instead, with t = tanh(|z|/2)/|z|, to some 1e-6 in float32 (the tests hold it):

    φ_1 = (e^z + 1)·t                       for every z: nothing cancels
    φ_k = (φ_{k−1} − 1/(k−1)!) / z          for |z| > 1, and a polynomial in between
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import factorial
from typing import Any

import numpy as np
from torch import Tensor

__all__ = ["compact_phi", "is_recording", "recording"]

_POLYNOMIAL_UP_TO = 1.0
_TINY = 1e-30
"""Below this |z| the quotient is that at _TINY, which is the same float32."""
_ERROR = 3e-7
"""Of the polynomial, relative: some units in the last place of a float32."""

_SERIES_TERMS = 20  # more than float64 shows for |z| ≤ 1

_recording: ContextVar[bool] = ContextVar("recording", default=False)


@contextmanager
def recording() -> Iterator[None]:
    """Inside this block `phi` is `compact_phi`."""
    before = _recording.set(True)
    try:
        yield
    finally:
        _recording.reset(before)


def is_recording() -> bool:
    return _recording.get()


def compact_phi(k: int, z: Tensor) -> Tensor:
    """φ_k(z) in the dtype of z."""
    if k == 0:
        return z.exp()
    size = z.abs()
    if k == 1:
        at = size.clamp(min=_TINY)
        return (z.exp() + 1) * ((at / 2).tanh() / at)
    far = (compact_phi(k - 1, z) - 1 / factorial(k - 1)) / z
    first, *rest = reversed(_polynomial(k))
    near = z * first
    for coefficient in rest[:-1]:
        near = (near + coefficient) * z
    return (near + rest[-1]).where(size <= _POLYNOMIAL_UP_TO, far)


@functools.cache
def _polynomial(k: int) -> list[float]:
    """Coefficients, lowest first, of the shortest interpolation at Chebyshev's points that is good to _ERROR.

    In NumPy, because PyTorch only pretends to compute while it records.
    """

    def values(z: Any) -> Any:
        return sum(z**j / factorial(j + k) for j in reversed(range(_SERIES_TERMS)))

    ends = -_POLYNOMIAL_UP_TO, _POLYNOMIAL_UP_TO
    grid = np.linspace(ends[0], ends[1], 1001)
    for degree in range(2, _SERIES_TERMS):
        fit = np.polynomial.Chebyshev.interpolate(values, degree, domain=ends)
        if np.abs(fit(grid) / values(grid) - 1).max() < _ERROR:
            break
    return [float(c) for c in fit.convert(kind=np.polynomial.Polynomial).coef]
