"""Launches the kernels of triton_kernels.py, in one configuration for all shapes: nothing is tuned at run time."""

from __future__ import annotations

from math import lcm
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..accelerator import on_device
from ..checks import real_dtype
from ..scan.triton_discretizations import DISCRETIZATIONS
from . import triton_kernels as kernels

_STATES = 512
"""States of a program, so that a thread has all 16 of a channel and sums over them by itself."""
_CONV_BLOCK = 128
_OPTIONS: dict[str, Any] = {"num_warps": 1, "num_stages": 1, "enable_fp_fusion": True}


def update_state(
    state: Tensor,
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    z: Tensor | None,
    delta_bias: Tensor | None,
    mix: Tensor | None,
    delta_softplus: bool,
    discretization: str,
) -> Tensor:
    """The output; the state is overwritten. One that is not contiguous is copied, and copied back."""
    batch, channels = u.shape
    N = A.shape[1]
    weights, token, step, _, P, taps, _ = DISCRETIZATIONS[discretization]
    h = state.contiguous()
    A = A.float()
    D, delta_bias = (None if t is None else t.float().contiguous() for t in (D, delta_bias))
    B, C = (matrix.unsqueeze(1) if matrix.ndim == 2 else matrix for matrix in (B, C))
    group = max(channels // lcm(B.shape[1], C.shape[1]), 1)  # channels that share both B and C
    block = min(max(_STATES // triton.next_power_of_2(N), 4), triton.next_power_of_2(group))
    blocks = channels // group * triton.cdiv(group, block)
    out = torch.empty_like(u.unsqueeze(-1)).squeeze(-1)
    with on_device(u):
        kernels.update_state[(blocks, batch)](
            *(h, u, delta, A, B, C, D, z, mix, delta_bias, out),
            *[() if t is None else t.stride() for t in (u, delta, B, C, z, mix, out)],
            *(channels, *A.stride()),
            WEIGHTS=weights,
            TOKEN=token,
            STEP=step,
            P=P,
            TAPS=taps,
            SOFTPLUS=delta_softplus,
            N=N,
            GROUP=group,
            GROUP_B=channels // B.shape[1],
            GROUP_C=channels // C.shape[1],
            BLOCK_D=block,
            **_OPTIONS,
        )
    if h is not state:
        state.copy_(h)
    return out


def update_conv(state: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, silu: bool) -> Tensor:
    """The output; the state is overwritten."""
    batch, D, L = x.shape
    out = torch.empty_like(x)
    with on_device(x):
        kernels.update_conv[(triton.cdiv(D, _CONV_BLOCK), batch)](
            *(state, x, weight, bias, out),
            *[() if t is None else t.stride() for t in (state, x, weight, bias, out)],
            *(D, L, state.shape[2]),
            K=weight.shape[1],
            SILU=silu,
            REAL=tl.float64 if real_dtype(state, x, weight, bias) == torch.float64 else tl.float32,
            BLOCK_D=_CONV_BLOCK,
            **_OPTIONS,
        )
    return out
