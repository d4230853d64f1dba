"""The native convolution as a PyTorch operator: the C interface of csrc/conv.h, its shapes and its gradient.

Registered piece by piece, not with `torch.library.custom_op`: a model calls this dozens of times per forward pass, and
what that adds around each call would be a good part of the time of a small one.
"""

from __future__ import annotations

import functools
from ctypes import POINTER, Structure, c_int, c_int32, c_int64
from typing import Any

import torch
from torch import Tensor

from .. import native
from ..native import StridedTensor, strided


class _Conv(Structure):
    _fields_ = [
        *((name, c_int32) for name in ("real", "silu", "reverse", "threads")),
        *((name, c_int64) for name in ("batch", "D", "L", "K")),
        *((name, StridedTensor) for name in ("x", "weight", "bias", "out", "d_out", "d_x", "d_weight", "d_bias")),
    ]


_ABSENT = StridedTensor()


@functools.cache
def _function(name: str) -> Any:
    return native.function(name, c_int, POINTER(_Conv))


def _run(name: str, x: Tensor, weight: Tensor, bias: Tensor | None, silu: bool, reverse: bool, *rest: Any) -> None:
    """Call the library; `rest` are the tensors after bias in `_Conv`."""
    double = torch.float64 in (x.dtype, weight.dtype, bias.dtype if bias is not None else None)
    tensors = (strided(x), strided(weight), _ABSENT if bias is None else strided(bias))
    if _function(name)(
        _Conv(double, silu, reverse, native.threads(), *x.shape, weight.shape[1], *tensors, *rest),
    ):
        raise MemoryError("causal_conv: the native backend could not allocate its scratch memory")


def _forward(x: Tensor, weight: Tensor, bias: Tensor | None, silu: bool, reverse: bool) -> Tensor:
    out = torch.empty_like(x)
    _run("tustin_conv_forward", x, weight, bias, silu, reverse, strided(out))
    return out


def _forward_fake(x: Tensor, weight: Tensor, bias: Tensor | None, silu: bool, reverse: bool) -> Tensor:
    return torch.empty_like(x)


def _backward(
    d_out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, silu: bool, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, weight and bias; the last also where there is none."""
    gradients = _backward_fake(d_out, x, weight, bias, silu, reverse)
    rest = (_ABSENT, strided(d_out), *(strided(t) for t in gradients))
    _run("tustin_conv_backward", x, weight, bias, silu, reverse, *rest)
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


_ARGUMENTS = "Tensor x, Tensor weight, Tensor? bias, bool silu, bool reverse"

torch.library.define("tustin::causal_conv", f"({_ARGUMENTS}) -> Tensor")
torch.library.impl("tustin::causal_conv", "cpu", _forward)
torch.library.register_fake("tustin::causal_conv", _forward_fake)
torch.library.register_autograd("tustin::causal_conv", _gradient, setup_context=_setup_context)

torch.library.define("tustin::causal_conv_backward", f"(Tensor d_out, {_ARGUMENTS}) -> (Tensor, Tensor, Tensor)")
torch.library.impl("tustin::causal_conv_backward", "cpu", _backward)
torch.library.register_fake("tustin::causal_conv_backward", _backward_fake)
torch.library.register_autograd("tustin::causal_conv_backward", _refuse_second_derivative)

conv = torch.ops.tustin.causal_conv.default
