"""The fused convolution as a PyTorch operator, with its shapes and its gradient registered once for every backend."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..dispatch import kernels
from ..operators import pull_back, register
from . import native, reference

_PACKAGE = __name__.rpartition(".")[0]


def _forward(x: Tensor, *arguments: Any) -> Tensor:
    out: Tensor = kernels(_PACKAGE, x.device).forward(x, *arguments)
    return out


def _forward_fake(x: Tensor, weight: Tensor, bias: Tensor | None, silu: bool, reverse: bool) -> Tensor:
    return torch.empty_like(x)


def _backward(d_out: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    gradients: tuple[Tensor, Tensor, Tensor] = kernels(_PACKAGE, d_out.device).backward(d_out, *arguments)
    return gradients


def _backward_fake(
    d_out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, silu: bool, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    return native.empty_gradients(x, weight, bias)


def _backward_definition(d_out: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    d_x, d_weight, *d_bias = pull_back(reference.conv, arguments, d_out)
    return d_x, d_weight, d_bias[0] if d_bias else d_weight[:, 0]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.silu, ctx.reverse = inputs
    ctx.save_for_backward(*tensors)


def _gradient(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, bias = ctx.saved_tensors
    d_x, d_weight, d_bias = _conv_backward(d_out, x, weight, bias, ctx.silu, ctx.reverse)
    return d_x, d_weight, None if bias is None else d_bias, None, None


_ARGUMENTS = "Tensor x, Tensor weight, Tensor? bias, bool silu, bool reverse"

conv = register(
    "causal_conv",
    f"({_ARGUMENTS}) -> Tensor",
    _forward,
    _forward_fake,
    reference.conv,
    _gradient,
    _setup_context,
)
_conv_backward = register(
    "causal_conv_backward",
    f"(Tensor d_out, {_ARGUMENTS}) -> (Tensor, Tensor, Tensor)",
    _backward,
    _backward_fake,
    _backward_definition,
)
