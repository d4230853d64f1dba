"""The fused convolution as a PyTorch operator: the C interface of csrc/conv.h, Triton, its shapes and its gradient.

Registered piece by piece, not with `torch.library.custom_op`: a model calls this dozens of times per forward pass, and
what that adds around each call would be a good part of the time of a small one.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

import torch
from torch import Tensor

from .. import native
from ..accelerator import GPUS, interpreted

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


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.silu, ctx.reverse = inputs
    ctx.save_for_backward(*tensors)


def _gradient(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, bias = ctx.saved_tensors
    d_x, d_weight, d_bias = torch.ops.tustin.causal_conv_backward(d_out, x, weight, bias, ctx.silu, ctx.reverse)
    return d_x, d_weight, None if bias is None else d_bias, None, None


def _refuse_second_derivative(ctx: Any, *gradients: Any) -> None:
    raise NotImplementedError("causal_conv: this backend has no second derivatives; use backend='reference'")


def _triton_forward(*arguments: Any) -> Tensor:
    from . import triton  # here, because importing Triton takes a second and not every machine has it

    return triton.forward(*arguments)


def _triton_backward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    from . import triton

    return triton.backward(*arguments)


_ARGUMENTS = "Tensor x, Tensor weight, Tensor? bias, bool silu, bool reverse"

_TRITON = (_triton_forward, _triton_backward)
_IMPLEMENTATIONS = {
    "cpu": _TRITON if interpreted() else (_native_forward, _native_backward),
    **dict.fromkeys(GPUS, _TRITON),
}

torch.library.define("tustin::causal_conv", f"({_ARGUMENTS}) -> Tensor")
torch.library.register_fake("tustin::causal_conv", _forward_fake)
torch.library.register_autograd("tustin::causal_conv", _gradient, setup_context=_setup_context)

torch.library.define("tustin::causal_conv_backward", f"(Tensor d_out, {_ARGUMENTS}) -> (Tensor, Tensor, Tensor)")
torch.library.register_fake("tustin::causal_conv_backward", _backward_fake)
torch.library.register_autograd("tustin::causal_conv_backward", _refuse_second_derivative)

for _device, (_run_forward, _run_backward) in _IMPLEMENTATIONS.items():
    torch.library.impl("tustin::causal_conv", _device, _run_forward)
    torch.library.impl("tustin::causal_conv_backward", _device, _run_backward)

conv = torch.ops.tustin.causal_conv.default
