"""Linear layers on AMD's CPUs: by oneDNN, where PyTorch would take MKL.

MKL multiplies float32 matrices at half the speed of such a CPU with AVX-512, or less. PyTorch contains oneDNN as well,
which uses all of it, but takes it for float32 only when it compiles a model.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .operators import needs_gradient_of, watched

_WORTH_IT = 1 << 20
"""Multiplications from which on oneDNN is faster: it takes ten microseconds to begin."""


def apply_linear(layer: nn.Module, x: Tensor) -> Tensor:
    """layer(x); by `linear` if calling it would do nothing else."""
    if may_be_faster() and type(layer) is nn.Linear and not has_hooks(layer):
        return linear(x, layer.weight, layer.bias)
    out: Tensor = layer(x)
    return out


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`F.linear`, forwards and backwards by whichever library is faster on this CPU."""
    if may_be_faster() and _suit(input, weight, bias) and are_plain(input, weight, bias):
        out: Tensor = _Linear.apply(input, weight, bias)
        return out
    return F.linear(input, weight, bias)


class _Linear(torch.autograd.Function):
    """x W' + b. The gradients are such products themselves, so they have gradients too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        need_x, need_weight, _ = ctx.needs_input_grad
        ctx.save_for_backward(x if need_weight else None, weight if need_x else None)
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        d_out = gradients[0]
        return (
            None if weight is None else linear(d_out, weight.t()),
            None if x is None else _weight_gradient(_rows(x), _rows(d_out)),
            _rows(d_out).sum(0) if ctx.needs_input_grad[2] else None,
        )


def _rows(x: Tensor) -> Tensor:
    """(…, K) → (M, K)."""
    return x.reshape(-1, x.shape[-1])


def _weight_gradient(x: Tensor, d_out: Tensor) -> Tensor:
    """d_out' x. oneDNN copies the first factor into rows, so that is the smaller one; the other must have no gaps."""
    if x.shape[1] < d_out.shape[1]:
        return linear(x.t(), d_out.contiguous().t()).t()
    return linear(d_out.t(), x.contiguous().t())


def _suit(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether oneDNN takes them, and is faster. It checks no shape, and reads a bias as if it were contiguous."""
    if weight.ndim != 2 or x.ndim == 0 or x.shape[-1] != weight.shape[1]:
        return False
    if not weight.is_contiguous() and not weight.t().is_contiguous():
        return False
    if bias is not None and (bias.shape != weight.shape[:1] or not bias.is_contiguous()):
        return False
    return x.numel() * len(weight) >= _WORTH_IT


def has_hooks(layer: nn.Module) -> bool:
    """Whether somebody wants to be asked or told when it is called; accelerate and others put a `forward` in it.

    Asked in private: PyTorch has no public question.
    """
    own = layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks
    return bool(own or "forward" in vars(layer) or torch.nn.modules.module._has_any_global_hook())


def may_be_faster() -> bool:
    """Whether `linear` may take oneDNN: on such a CPU, while nobody traces, transforms or watches operators.

    `torch.backends.mkldnn.flags(enabled=False)` turns it off.
    """
    if watched() or torch.is_autocast_enabled("cpu"):
        return False
    return onednn_is_faster() and torch._C._get_mkldnn_enabled()


def are_plain(*tensors: Tensor | None) -> bool:
    """Whether all that are given are float32 on the CPU, and their memory holds their values."""
    plain = all(t is None or (t.dtype is torch.float32 and t.is_cpu) for t in tensors)
    return plain and needs_gradient_of(tensors) is not None


@functools.cache
def onednn_is_faster() -> bool:
    """On CPUs of AMD with AVX-512, where PyTorch holds both libraries; on Intel's both are as fast."""
    if not (torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):
        return False
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    cpuinfo = Path("/proc/cpuinfo")
    return cpuinfo.exists() and "AuthenticAMD" in cpuinfo.read_text()
