"""The fused gate and norm as PyTorch operators: the C interface of csrc/rowwise.h, their shapes and their gradients."""

from __future__ import annotations

from struct import Struct
from typing import Any

import torch
from torch import Tensor

from .. import native
from ..operators import pull_back, register
from . import reference

_GATE_ARGUMENTS = "Tensor a, Tensor b, Tensor gate"
_NORM_ARGUMENTS = "Tensor x, Tensor weight, float eps"

_GATE = Struct("@2iq7P")  # TustinGate of csrc/rowwise.h
_NORM = Struct("@3i2qd6P")  # TustinNorm


# --- gated_mean -------------------------------------------------------------------------------------------------------


def _run_gate(name: str, a: Tensor, b: Tensor, gate: Tensor, *rest: Tensor | None) -> None:
    """Call the library; `rest` are the tensors after gate."""
    pointers = map(native.address, (a, b, gate, *rest))
    arguments = _GATE.pack(native.DTYPES[gate.dtype], native.threads(), gate.numel(), *pointers)
    native.call(name, arguments, "gated_mean")


def _gate_forward(a: Tensor, b: Tensor, gate: Tensor) -> Tensor:
    out = native.in_huge_pages(_gate_forward_fake(a, b, gate))
    _run_gate("tustin_gate_forward", a.contiguous(), b.contiguous(), gate.contiguous(), out, None, None, None)
    return out


def _gate_forward_fake(a: Tensor, b: Tensor, gate: Tensor) -> Tensor:
    return torch.empty_like(gate, memory_format=torch.contiguous_format)


def _gate_backward(d_out: Tensor, a: Tensor, b: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of a, which is that of b, and the gradient of the gate."""
    d_sum, d_gate = map(native.in_huge_pages, _gate_backward_fake(d_out, a, b, gate))
    tensors = a.contiguous(), b.contiguous(), gate.contiguous(), None, d_out.contiguous(), d_sum, d_gate
    _run_gate("tustin_gate_backward", *tensors)
    return d_sum, d_gate


def _gate_backward_fake(d_out: Tensor, a: Tensor, b: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
    return _gate_forward_fake(a, b, gate), _gate_forward_fake(a, b, gate)


def _gate_definition(*arguments: Tensor) -> Tensor:
    """Rounded once, as by the kernel."""
    dtype = arguments[0].dtype
    return reference.gated_mean(*(t.to(torch.promote_types(dtype, torch.float32)) for t in arguments)).to(dtype)


def _gate_backward_definition(d_out: Tensor, *arguments: Tensor) -> tuple[Tensor, Tensor]:
    d_sum, _, d_gate = pull_back(_gate_definition, arguments, d_out)
    return d_sum, d_gate


def _gate_setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gate_gradient(ctx: Any, d_out: Tensor) -> tuple[Tensor, ...]:
    d_sum, d_gate = _gated_mean_backward(d_out, *ctx.saved_tensors)
    return d_sum, d_sum, d_gate


gated_mean = register(
    "gated_mean",
    f"({_GATE_ARGUMENTS}) -> Tensor",
    _gate_forward,
    _gate_forward_fake,
    _gate_definition,
    _gate_gradient,
    _gate_setup_context,
    devices=["cpu"],
)
_gated_mean_backward = register(
    "gated_mean_backward",
    f"(Tensor d_out, {_GATE_ARGUMENTS}) -> (Tensor, Tensor)",
    _gate_backward,
    _gate_backward_fake,
    _gate_backward_definition,
    devices=["cpu"],
)


# --- rms_norm ---------------------------------------------------------------------------------------------------------


def _run_norm(name: str, eps: float, x: Tensor, weight: Tensor, *rest: Tensor | None) -> None:
    """Call the library; `rest` are the tensors after weight."""
    D = weight.shape[0]
    numbers = native.DTYPES[x.dtype], native.DTYPES[weight.dtype], native.threads(), x.numel() // max(D, 1), D, eps
    native.call(name, _NORM.pack(*numbers, *map(native.address, (x, weight, *rest))), "rms_norm")


def _norm_forward(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    out = native.in_huge_pages(_norm_forward_fake(x, weight, eps))
    _run_norm("tustin_norm_forward", eps, x.contiguous(), weight.contiguous(), out, None, None, None)
    return out


def _norm_forward_fake(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return torch.empty_like(x, dtype=weight.dtype, memory_format=torch.contiguous_format)


def _norm_backward(d_out: Tensor, x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The gradients of x and weight."""
    d_x, d_weight = _norm_backward_fake(d_out, x, weight, eps)
    tensors = x.contiguous(), weight.contiguous(), None, d_out.contiguous(), native.in_huge_pages(d_x), d_weight
    _run_norm("tustin_norm_backward", eps, *tensors)
    return d_x, d_weight


def _norm_backward_fake(d_out: Tensor, x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    layout = torch.contiguous_format
    return torch.empty_like(x, memory_format=layout), torch.empty_like(weight, memory_format=layout)


def _norm_backward_definition(d_out: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    return pull_back(reference.rms_norm, arguments, d_out)


def _norm_setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, ctx.eps = inputs
    ctx.save_for_backward(x, weight)


def _norm_gradient(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
    return *_rms_norm_backward(d_out, *ctx.saved_tensors, ctx.eps), None


rms_norm = register(
    "rms_norm",
    f"({_NORM_ARGUMENTS}) -> Tensor",
    _norm_forward,
    _norm_forward_fake,
    reference.rms_norm,
    _norm_gradient,
    _norm_setup_context,
    devices=["cpu"],
)
_rms_norm_backward = register(
    "rms_norm_backward",
    f"(Tensor d_out, {_NORM_ARGUMENTS}) -> (Tensor, Tensor)",
    _norm_backward,
    _norm_backward_fake,
    _norm_backward_definition,
    devices=["cpu"],
)
