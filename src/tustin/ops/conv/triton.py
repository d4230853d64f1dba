"""Launches the kernels of triton_kernels.py, in one configuration for all shapes: nothing is tuned at run time."""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from ..accelerator import on_device
from ..checks import real_dtype
from . import triton_kernels as kernels

BLOCK_D, BLOCK_L = 32, 32
"""Channels and tokens of a program: a row of either is what a GPU reads from memory at once."""
_WARPS = 4


def forward(x: Tensor, weight: Tensor, bias: Tensor | None, silu: bool, reverse: bool) -> Tensor:
    """The convolution, laid out as x."""
    out = torch.empty_like(x)
    with on_device(x):
        kernels.forward[_grid(x)](
            *(x, weight, bias, out),
            *(_strides(x, weight, bias), out.stride()),
            *x.shape[1:],
            **_options(x, weight, bias, silu, reverse),
        )
    return out


def backward(
    d_out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, silu: bool, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, weight and bias; the last also where there is none.

    Those of weight and bias are sums over tokens and samples: one partial sum per program, cut by the shapes alone,
    and added by PyTorch in an order that depends on nothing but their number.
    """
    d_x = torch.empty_like(x)
    grid = _grid(x)
    batch, _, blocks = grid
    D, K = weight.shape
    partial = x.new_empty(batch * blocks, K + 1, D, dtype=real_dtype(x, weight, bias))
    with on_device(x):
        kernels.backward[grid](
            *(x, weight, bias, d_out, d_x, partial),
            *(_strides(x, weight, bias), d_out.stride(), d_x.stride()),
            *x.shape[1:],
            **_options(x, weight, bias, silu, reverse),
        )
    sums = partial.sum(0)  # (K + 1, D)
    d_weight = weight.new_empty(D, K).copy_(sums[:K].T)
    return d_x, d_weight, sums[K].to(weight.dtype if bias is None else bias.dtype)


def _grid(x: Tensor) -> tuple[int, int, int]:
    batch, D, L = x.shape
    return batch, -(-D // BLOCK_D), -(-L // BLOCK_L)


def _strides(x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[tuple[int, ...], ...]:
    return x.stride(), weight.stride(), () if bias is None else bias.stride()


def _options(x: Tensor, weight: Tensor, bias: Tensor | None, silu: bool, reverse: bool) -> dict[str, Any]:
    return {
        "K": weight.shape[1],
        "SILU": silu,
        "REVERSE": reverse,
        "REAL": tl.float64 if real_dtype(x, weight, bias) == torch.float64 else tl.float32,
        "BLOCK_D": BLOCK_D,
        "BLOCK_L": BLOCK_L,
        "num_warps": _WARPS,
        "num_stages": 1,
        "enable_fp_fusion": True,
    }
