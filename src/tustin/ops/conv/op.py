"""The fused convolution as a PyTorch operator: the C interface of csrc/conv.h, Triton, its shapes and its gradient."""

from __future__ import annotations

from struct import Struct
from typing import Any

import torch
from torch import Tensor

from .. import native
from ..accelerator import interpreted
from ..operators import pull_back, register
from . import reference

_INTERPRETED = interpreted()
_CONV = Struct(f"@4i4q{native.TENSOR * 8}")  # TustinConv of csrc/conv.h


def _run(name: str, silu: bool, reverse: bool, x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> None:
    """Call the library; `rest` are the tensors after bias."""
    double = torch.float64 in (x.dtype, weight.dtype, None if bias is None else bias.dtype)
    real = native.DTYPES[torch.float64 if double else torch.float32]
    numbers = [real, silu, reverse, native.threads(), *x.shape, weight.shape[1]]
    for t in (x, weight, bias, *rest):
        numbers += native.fields(t)
    native.call(name, _CONV.pack(*numbers), "causal_conv")


def _native_forward(x: Tensor, weight: Tensor, bias: Tensor | None, silu: bool, reverse: bool) -> Tensor:
    out = native.in_huge_pages(torch.empty_like(x))
    _run("tustin_conv_forward", silu, reverse, x, weight, bias, out, None, None, None, None)
    return out


def _forward_fake(x: Tensor, weight: Tensor, bias: Tensor | None, silu: bool, reverse: bool) -> Tensor:
    return torch.empty_like(x)


def _native_backward(
    d_out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, silu: bool, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, weight and bias; the last also where there is none."""
    gradients = _backward_fake(d_out, x, weight, bias, silu, reverse)
    native.in_huge_pages(gradients[0])
    _run("tustin_conv_backward", silu, reverse, x, weight, bias, None, d_out, *gradients)
    return gradients


def _backward_fake(
    d_out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, silu: bool, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    like = weight if bias is None else bias
    return torch.empty_like(x), weight.new_empty(weight.shape), like.new_empty(x.shape[1])


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


def _forward(x: Tensor, *arguments: Any) -> Tensor:
    return _triton().forward(x, *arguments) if _on_triton(x) else _native_forward(x, *arguments)


def _backward(d_out: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _triton().backward(d_out, *arguments) if _on_triton(d_out) else _native_backward(d_out, *arguments)


def _on_triton(x: Tensor) -> bool:
    return _INTERPRETED or not x.is_cpu


def _triton() -> Any:
    from . import triton  # here, because importing Triton takes a second and not every machine has it

    return triton


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
