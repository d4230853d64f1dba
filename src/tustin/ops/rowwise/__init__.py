"""What a block does to each number, or to each token, around the mixer's products: the gate and the norm."""

from __future__ import annotations

import sys

import torch
from torch import Tensor

from ..checks import check_tensor
from ..dispatch import NATIVE, REFERENCE, choose, declare
from . import op, reference

__all__ = ["beside", "gated_mean", "rms_norm"]


def _never(device: torch.device) -> bool:
    """Plain PyTorch is not much slower here."""
    return False


for _operator in ("gated_mean", "rms_norm"):
    declare(_operator, NATIVE, REFERENCE, warns=_never)


def gated_mean(a: Tensor, b: Tensor, gate: Tensor, *, backend: str = "auto") -> Tensor:
    """(a + b)/2 · silu(gate), in one pass over memory.

    Args:
        a: Of any shape and strides.
        b: As a.
        gate: As a.
        backend: "auto", "native" (CPU) or "reference". "auto" is native where that can run. Under the transforms of
            `torch.func` and in forward-mode differentiation the reference replaces it.

    Returns:
        The same shape and dtype. "native" computes in float32, or float64 if that is the dtype, and rounds once.
    """
    check_tensor("gated_mean", "a", a)
    for name, tensor in (("b", b), ("gate", gate)):
        check_tensor("gated_mean", name, tensor)
        if tensor.shape != a.shape:
            raise ValueError(f"gated_mean: {name} has shape {tuple(tensor.shape)}, but a has {tuple(a.shape)}")
        if tensor.dtype != a.dtype:
            raise TypeError(f"gated_mean: {name} is {tensor.dtype}, but a is {a.dtype}")
        if tensor.device != a.device:
            raise ValueError(f"gated_mean: {name} is on {tensor.device}, but a is on {a.device}")
    chosen = choose("gated_mean", backend, a.device)
    return (reference.gated_mean if chosen == "reference" else op.gated_mean)(a, b, gate)


def rms_norm(x: Tensor, weight: Tensor, eps: float, *, backend: str = "auto") -> Tensor:
    """x / √(mean(x²) + eps) · weight, the mean over the last dimension (RMSNorm, arXiv 1910.07467).

    Args:
        x: (…, D), of any strides.
        weight: (D,).
        eps: Added to the mean of the squares; at least 0.
        backend: "auto", "native" (CPU) or "reference". "auto" is native where that can run. Under the transforms of
            `torch.func` and in forward-mode differentiation the reference replaces it.

    Returns:
        The shape of x, in the dtype of the weight. Inside, everything is float32, or float64 if an argument is.
    """
    check_tensor("rms_norm", "x", x)
    check_tensor("rms_norm", "weight", weight)
    if not isinstance(eps, float | int) or isinstance(eps, bool):
        raise TypeError(f"rms_norm: eps must be a number, got {eps!r}")
    if not 0 <= eps <= sys.float_info.max:
        raise ValueError(f"rms_norm: eps must be finite and at least 0, got {eps!r}")
    if weight.ndim != 1 or x.shape[-1:] != weight.shape:
        shapes = f"x has shape {tuple(x.shape)} and weight {tuple(weight.shape)}"
        raise ValueError(f"rms_norm: {shapes}, expected (…, D) and (D,)")
    if weight.device != x.device:
        raise ValueError(f"rms_norm: weight is on {weight.device}, but x is on {x.device}")
    chosen = choose("rms_norm", backend, x.device)
    return (reference.rms_norm if chosen == "reference" else op.rms_norm)(x, weight, eps)


def beside(scan_backend: str) -> str:
    """The backend for the model whose scan runs on `scan_backend`: the reference beside the reference."""
    return "reference" if scan_backend == "reference" else "auto"
