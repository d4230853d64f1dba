"""The fused gate and norm as PyTorch operators, with their shapes and their gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..operators import pull_back, register
from . import native, reference

_GATE_ARGUMENTS = "Tensor a, Tensor b, Tensor gate"
_NORM_ARGUMENTS = "Tensor x, Tensor weight, float eps"


# --- gated_mean -------------------------------------------------------------------------------------------------------


def _gate_forward_fake(a: Tensor, b: Tensor, gate: Tensor) -> Tensor:
    return native.empty_gated_mean(gate)


def _gate_backward_fake(d_out: Tensor, a: Tensor, b: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
    return native.empty_gated_mean(gate), native.empty_gated_mean(gate)


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
    native.gate_forward,
    _gate_forward_fake,
    _gate_definition,
    _gate_gradient,
    _gate_setup_context,
    devices=["cpu"],
)
_gated_mean_backward = register(
    "gated_mean_backward",
    f"(Tensor d_out, {_GATE_ARGUMENTS}) -> (Tensor, Tensor)",
    native.gate_backward,
    _gate_backward_fake,
    _gate_backward_definition,
    devices=["cpu"],
)


# --- rms_norm ---------------------------------------------------------------------------------------------------------


def _norm_forward_fake(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return native.empty_norm(x, weight)


def _norm_backward_fake(d_out: Tensor, x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return native.empty_norm_gradients(x, weight)


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
    native.norm_forward,
    _norm_forward_fake,
    reference.rms_norm,
    _norm_gradient,
    _norm_setup_context,
    devices=["cpu"],
)
_rms_norm_backward = register(
    "rms_norm_backward",
    f"(Tensor d_out, {_NORM_ARGUMENTS}) -> (Tensor, Tensor)",
    native.norm_backward,
    _norm_backward_fake,
    _norm_backward_definition,
    devices=["cpu"],
)
