"""The native CPU backend: the convolution of csrc/conv.h."""

from __future__ import annotations

from struct import Struct
from typing import Any

import torch
from torch import Tensor

from .. import native
from ..checks import real_dtype

_CONV = Struct(f"@4i4q{native.TENSOR * 8}")  # TustinConv


def forward(x: Tensor, weight: Tensor, bias: Tensor | None, silu: bool, reverse: bool) -> Tensor:
    """The convolution, laid out as x."""
    out = native.in_huge_pages(torch.empty_like(x))
    _run("tustin_conv_forward", silu, reverse, x, weight, bias, out, None, None, None, None)
    return out


def backward(
    d_out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, silu: bool, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, weight and bias; the last also where there is none."""
    gradients = empty_gradients(x, weight, bias)
    native.in_huge_pages(gradients[0])
    _run("tustin_conv_backward", silu, reverse, x, weight, bias, None, d_out, *gradients)
    return gradients


def empty_gradients(x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Room for what `backward` returns."""
    like = weight if bias is None else bias
    return torch.empty_like(x), weight.new_empty(weight.shape), like.new_empty(x.shape[1])


def _run(name: str, silu: bool, reverse: bool, x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> None:
    """Call the library; `rest` are the tensors after bias."""
    real = native.DTYPES[real_dtype(x, weight, bias)]
    numbers = [real, silu, reverse, native.threads(), *x.shape, weight.shape[1]]
    for t in (x, weight, bias, *rest):
        numbers += native.fields(t)
    native.call(name, _CONV.pack(*numbers), "causal_conv")
