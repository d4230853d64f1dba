"""The native CPU backend: the gate and the norm of csrc/rowwise.h. Everything it returns is contiguous."""

from __future__ import annotations

from struct import Struct

import torch
from torch import Tensor

from .. import native

_GATE = Struct("@2iq7P")  # TustinGate
_NORM = Struct("@3i2qd6P")  # TustinNorm


def gate_forward(a: Tensor, b: Tensor, gate: Tensor) -> Tensor:
    out = native.in_huge_pages(empty_gated_mean(gate))
    _run_gate("tustin_gate_forward", a.contiguous(), b.contiguous(), gate.contiguous(), out, None, None, None)
    return out


def gate_backward(d_out: Tensor, a: Tensor, b: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of a, which is that of b, and the gradient of the gate."""
    d_sum, d_gate = native.in_huge_pages(empty_gated_mean(gate)), native.in_huge_pages(empty_gated_mean(gate))
    tensors = a.contiguous(), b.contiguous(), gate.contiguous(), None, d_out.contiguous(), d_sum, d_gate
    _run_gate("tustin_gate_backward", *tensors)
    return d_sum, d_gate


def empty_gated_mean(gate: Tensor) -> Tensor:
    return torch.empty_like(gate, memory_format=torch.contiguous_format)


def norm_forward(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    out = native.in_huge_pages(empty_norm(x, weight))
    _run_norm("tustin_norm_forward", eps, x.contiguous(), weight.contiguous(), out, None, None, None)
    return out


def norm_backward(d_out: Tensor, x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The gradients of x and weight."""
    d_x, d_weight = empty_norm_gradients(x, weight)
    tensors = x.contiguous(), weight.contiguous(), None, d_out.contiguous(), native.in_huge_pages(d_x), d_weight
    _run_norm("tustin_norm_backward", eps, *tensors)
    return d_x, d_weight


def empty_norm(x: Tensor, weight: Tensor) -> Tensor:
    return torch.empty_like(x, dtype=weight.dtype, memory_format=torch.contiguous_format)


def empty_norm_gradients(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    layout = torch.contiguous_format
    return torch.empty_like(x, memory_format=layout), torch.empty_like(weight, memory_format=layout)


def _run_gate(name: str, a: Tensor, b: Tensor, gate: Tensor, *rest: Tensor | None) -> None:
    """Call the library; `rest` are the tensors after gate."""
    numbers = native.DTYPES[gate.dtype], native.threads(), gate.numel()
    native.call(name, _GATE.pack(*numbers, *native.addresses(a, b, gate, *rest)), "gated_mean")


def _run_norm(name: str, eps: float, x: Tensor, weight: Tensor, *rest: Tensor | None) -> None:
    """Call the library; `rest` are the tensors after weight."""
    D = weight.shape[0]
    numbers = native.DTYPES[x.dtype], native.DTYPES[weight.dtype], native.threads(), x.numel() // max(D, 1), D, eps
    native.call(name, _NORM.pack(*numbers, *native.addresses(x, weight, *rest)), "rms_norm")
