"""Launches the kernels of triton_kernels.py: shapes, strides, and one of a few fixed configurations, chosen by shape.

Nothing is tuned at run time, so the same shapes give the same bits on every run.
"""

from __future__ import annotations

from math import lcm
from typing import Any

import torch
from torch import Tensor

from ..accelerator import on_device
from . import triton_kernels as kernels
from .triton_methods import METHODS

CHUNK = 16
"""How many tokens lie between two states that the forward pass keeps for the backward pass."""


def forward(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    z: Tensor | None,
    delta_bias: Tensor | None,
    initial_state: Tensor | None,
    delta_softplus: bool,
    method: str,
    reverse: bool,
    chunk_states: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The output and the last state; fills `chunk_states` (batch, chunks, N, D) where it is given."""
    batch, channels, L = u.shape
    N = A.shape[1]
    out = torch.empty_like(u)
    last_state = A.new_empty(batch, channels, N)
    shape = _shape(A, B, C)
    B, C = _with_groups(B), _with_groups(C)
    with on_device(u):
        kernels.forward[(_blocks(channels, shape), 1, batch)](
            *(u, delta, A.contiguous(), B, C, D, z, delta_bias),
            initial_state.transpose(1, 2).contiguous() if initial_state is not None else None,
            *(out, last_state, chunk_states),
            *(_strides(t) for t in (u, delta, B, C, z, out)),
            *(channels, L, L),
            STEP=METHODS[method].step,
            SOFTPLUS=delta_softplus,
            REVERSE=reverse,
            CHUNK=CHUNK,
            UNROLL=4,
            **shape,
            **_OPTIONS,
        )
    return out, last_state


_OPTIONS: dict[str, Any] = {"num_warps": 1, "num_stages": 1, "enable_fp_fusion": True}


def _shape(A: Tensor, B: Tensor, C: Tensor) -> dict[str, int]:
    channels, N = A.shape
    groups = lcm(_groups(B) or 1, _groups(C) or 1)
    return {
        "N": N,
        "GROUP": channels // groups,
        "GROUP_B": channels // _groups(B) if _groups(B) else 0,
        "GROUP_C": channels // _groups(C) if _groups(C) else 0,
        "BLOCK_D": 32,
    }


def _blocks(channels: int, shape: dict[str, int]) -> int:
    return channels // shape["GROUP"] * -(-shape["GROUP"] // shape["BLOCK_D"])


def _groups(matrix: Tensor) -> int:
    """0 for a constant matrix (D, N), 1 for one per token (batch, N, L), G for (batch, G, N, L)."""
    return matrix.shape[1] if matrix.ndim == 4 else matrix.ndim - 2


def _with_groups(matrix: Tensor) -> Tensor:
    """B or C with a dimension for the group, unless it is constant."""
    return matrix.unsqueeze(1) if matrix.ndim == 3 else matrix


def _strides(tensor: Tensor | None) -> tuple[int, ...]:
    return () if tensor is None else tensor.stride()
