"""The φ-functions in few operations of one precision, for a formula that is recorded and then runs elsewhere.

`phi` computes in float64, by a series of 26 terms. A graph of such a formula would be long, and slow or refused where
float64 is. Inside `recording()` it is instead, with t = tanh(|z|/2)/|z|, to some 1e-6 in float32 (the tests hold it):

    φ_1 = (e^z + 1)·t                       for every z: nothing cancels
    φ_k = (φ_{k−1} − 1/(k−1)!) / z          for |z| > 1, and a polynomial in between
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import factorial

import numpy as np
from torch import Tensor

__all__ = ["compact_phi", "is_recording", "recording"]

_POLYNOMIAL_UP_TO = 1.0
_TINY = 1e-30
"""Below this |z| the quotient is that at _TINY, which is the same float32."""
_ERROR = 3e-7
"""Of the polynomial, relative: some units in the last place of a float32."""

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


def compact_phi(k: int, z: Tensor, exact: Callable[[int, Tensor], Tensor]) -> Tensor:
    """φ_k(z) in the dtype of z; `exact` computes φ_k in float64, and the polynomials are fitted to it."""
    if k == 0:
        return z.exp()
    size = z.abs()
    if k == 1:
        at = size.clamp(min=_TINY)
        return (z.exp() + 1) * ((at / 2).tanh() / at)
    far = (compact_phi(k - 1, z, exact) - 1 / factorial(k - 1)) / z
    first, *rest = reversed(_polynomial(k, exact))
    near = z * first
    for coefficient in rest[:-1]:
        near = (near + coefficient) * z
    return (near + rest[-1]).where(size <= _POLYNOMIAL_UP_TO, far)


@functools.cache
def _polynomial(k: int, exact: Callable[[int, Tensor], Tensor]) -> list[float]:
    """Coefficients, lowest first, of the shortest interpolation at Chebyshev's points that is good to _ERROR."""
    import torch

    def values(z: np.ndarray) -> np.ndarray:
        return exact(k, torch.as_tensor(z, dtype=torch.float64)).numpy()

    grid = np.linspace(-1, 1, 1001) * _POLYNOMIAL_UP_TO
    for degree in range(1, 20):
        fit = np.polynomial.Chebyshev.interpolate(values, degree, domain=[-_POLYNOMIAL_UP_TO, _POLYNOMIAL_UP_TO])
        if np.abs(fit(grid) / values(grid) - 1).max() < _ERROR:
            break
    return [float(c) for c in fit.convert(kind=np.polynomial.Polynomial).coef]
