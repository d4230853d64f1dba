"""Launches the kernels of triton_forward.py and triton_backward.py, each in one of a few configurations, by shape.

Nothing is tuned at run time, so the same shapes give the same bits on every run.
"""

from __future__ import annotations

from math import lcm
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from ...discretize import get_discretization
from ..accelerator import on_device
from . import triton_backward, triton_forward
from .arguments import Options, Tensors, empty_state, groups
from .triton_discretizations import DISCRETIZATIONS

CHUNK, UNROLL = 16, 4
"""Tokens between two kept states, and tokens that a program takes at once."""
ENOUGH_PROGRAMS = 512
"""With so many a GPU is busy; with fewer, time is cut into segments."""
SHORTEST_SEGMENT = 4 * CHUNK
"""A shorter one would not pay for walking it twice."""

# States per warp. Forward, a thread has all 16 states of a channel and sums over them by itself; backward it has a
# quarter of them, because it keeps dozens of values of each in registers.
_FORWARD_STATES, _BACKWARD_STATES = 512, 128
_OPTIONS: dict[str, Any] = {"num_stages": 1, "enable_fp_fusion": True}


def chunk_length() -> int:
    """How many tokens lie between two states that the forward pass keeps for the backward pass."""
    return CHUNK


def forward(tensors: Tensors, options: Options, chunk_states: Tensor | None) -> tuple[Tensor, Tensor]:
    """The output and the last state; fills `chunk_states` (batch, chunks, N, D) where it is given."""
    u, delta, A, B, C, D, z, delta_bias, initial_state, mix = tensors
    work = _Work(u, A, B, C, _FORWARD_STATES)
    if work.segments > 1:  # few rows: twice the programs before time is cut
        work = _Work(u, A, B, C, _FORWARD_STATES // 2)
    B, C = _with_groups(B), _with_groups(C)
    D, delta_bias = (None if t is None else t.contiguous() for t in (D, delta_bias))
    out = torch.empty_like(u)
    last_state = empty_state(u, A, get_discretization(options.discretization))
    how = _how(options, work, u, delta, B, C, z, mix, out)
    start, past = _in_parts(initial_state)
    with on_device(u):
        if work.segments > 1:
            ends, products = work.states(), work.states()
            pasts = work.states() if how["TAPS"] == 2 else None
            triton_forward.end_of_segment[work.grid](
                *(u, delta, A, B, mix, delta_bias, past, ends, products, pasts),
                *_strides(u, delta, B, mix),
                *work.sizes,
                *A.stride(),
                **work.constants("GROUP_B"),
                **how,
            )
            start, past = work.join(start, ends, products, backwards=False), pasts
        triton_forward.forward[work.grid](
            *(u, delta, A, B, C, D, z, mix, delta_bias, start, past, out, last_state, chunk_states),
            *_strides(u, delta, B, C, z, mix, out),
            *work.sizes,
            *A.stride(),
            *last_state.stride()[1:3],
            **work.constants("GROUP_B", "GROUP_C"),
            **how,
            **_registers(u, options, work),
            CHUNK=CHUNK,
        )
    return out, last_state


def backward(
    d_out: Tensor, d_last_state: Tensor | None, tensors: Tensors, options: Options, chunk_states: Tensor
) -> Tensors:
    """The gradient of every tensor that was given."""
    u, delta, A, B, C, D, z, delta_bias, initial_state, mix = tensors
    work = _Work(u, A, B, C, _BACKWARD_STATES)
    d_u, d_delta = torch.empty_like(u), torch.empty_like(delta)
    d_z, d_mix = (None if t is None else torch.empty_like(t) for t in (z, mix))
    d_state = empty_state(u, A, get_discretization(options.discretization))
    sums_A, sums_D, sums_bias = work.states(), work.channels(), work.channels()
    sums_B, sums_C = (work.states() if matrix.ndim == 2 else work.tokens() for matrix in (B, C))
    B, C = _with_groups(B), _with_groups(C)
    D, delta_bias = (None if t is None else t.contiguous() for t in (D, delta_bias))
    walked = (d_out, u, delta, B, C, z, mix, d_u, d_delta, d_z, d_mix, sums_B.mT, sums_C.mT)
    how = _how(options, work, *walked)
    d_end, d_past = _in_parts(d_last_state)
    _, past = _in_parts(initial_state)
    with on_device(u):
        if work.segments > 1:
            starts, products = work.states(), work.states()
            pasts, past_products = (work.states() if how["TAPS"] == 2 else None for _ in range(2))
            triton_backward.start_of_segment[work.grid](
                *(d_out, delta, A, C, z, mix, delta_bias, starts, products, pasts, past_products),
                *_strides(d_out, delta, C, z, mix),
                *work.sizes,
                *A.stride(),
                **work.constants("GROUP_C"),
                **how,
            )
            d_end = work.join(d_end, starts, products, True, d_past, pasts, past_products)
            d_past = pasts
        triton_backward.backward[work.grid](
            *(d_out, u, delta, A, B, C, D, z, mix, delta_bias, chunk_states, past, d_end, d_past),
            *(d_u, d_delta, d_z, d_mix, sums_A, sums_B, sums_C, sums_D, sums_bias, d_state),
            *_strides(d_out, u, delta, B, C, z, mix, d_u, d_delta, d_z, d_mix),
            *work.sizes,
            *A.stride(),
            *d_state.stride()[1:3],
            **work.constants("GROUP_B", "GROUP_C"),
            **how,
            ADJOINT=DISCRETIZATIONS[options.discretization].adjoint,
            CHUNK=CHUNK,
        )
    return Tensors(
        u=d_u,
        delta=d_delta,
        A=_sum_of_states(sums_A),
        B=work.sum_of_matrix(sums_B, tensors.B),
        C=work.sum_of_matrix(sums_C, tensors.C),
        D=None if D is None else sums_D.sum((0, 1)),
        z=d_z,
        delta_bias=None if delta_bias is None else sums_bias.sum((0, 1)),
        initial_state=None if initial_state is None else d_state.contiguous(),
        mix=d_mix,
    )


def warm_up(tensors: Tensors, options: Options) -> None:
    """Run a scan and its gradient once for nothing, so that no later one of these shapes waits for the compiler."""
    u, A = tensors.u, tensors.A
    chunk_states = A.new_empty(u.shape[0], _parts(u.shape[2], CHUNK), A.shape[1], u.shape[1])
    out, last_state = forward(tensors, options, chunk_states)
    backward(torch.zeros_like(out), torch.zeros_like(last_state), tensors, options, chunk_states)


class _Work:
    """How a scan is cut into programs, by its shape alone: blocks of channels, segments of time, samples."""

    def __init__(self, u: Tensor, A: Tensor, B: Tensor, C: Tensor, states_per_warp: int) -> None:
        self.batch, self.D, self.L = u.shape
        self.N = A.shape[1]
        self.like = A
        groups_B, groups_C = groups(B), groups(C)
        group = max(self.D // lcm(groups_B or 1, groups_C or 1), 1)  # channels that share both B and C
        rows = _power_of_two(self.N)
        block = min(max(states_per_warp // rows, 4), _power_of_two(group))
        self.blocks = self.D // group * _parts(group, block)

        parts = _parts(ENOUGH_PROGRAMS, max(self.blocks * self.batch, 1))
        length = _parts(max(_parts(self.L, parts), SHORTEST_SEGMENT), CHUNK) * CHUNK
        self.segments = _parts(self.L, length)
        self.sizes = (self.D, self.L, length)
        self.grid = (self.blocks, self.segments, self.batch)
        self._constants = {
            "N": self.N,
            "GROUP": group,
            "BLOCK_D": block,
            "GROUP_B": self.D // groups_B if groups_B else 0,
            "GROUP_C": self.D // groups_C if groups_C else 0,
        }
        self._options = {"num_warps": max(1, rows * block // states_per_warp), **_OPTIONS}

    def constants(self, *more: str) -> dict[str, Any]:
        """What a kernel is compiled for."""
        return {name: self._constants[name] for name in ("N", "GROUP", "BLOCK_D", *more)} | self._options

    def states(self) -> Tensor:
        """Room for one state per segment."""
        return self.like.new_empty(self.batch, self.segments, self.N, self.D)

    def channels(self) -> Tensor:
        """Room for one number per segment and channel."""
        return self.like.new_empty(self.batch, self.segments, self.D)

    def tokens(self) -> Tensor:
        """Room for one sum per block of channels, token and state."""
        return self.like.new_empty(self.batch, self.blocks, self.L, self.N)

    def sum_of_matrix(self, partial: Tensor, matrix: Tensor) -> Tensor:
        """The gradient of B or C: PyTorch adds the partial sums in a fixed order."""
        if matrix.ndim == 2:
            return _sum_of_states(partial).to(matrix.dtype)
        total = partial.view(self.batch, groups(matrix), self.blocks // groups(matrix), self.L, self.N).sum(2)
        total = total.transpose(2, 3).view_as(matrix) if matrix.ndim == 4 else total[:, 0].transpose(1, 2)
        return torch.empty_like(matrix).copy_(total)

    def join(
        self, start: Tensor | None, ends: Tensor, products: Tensor, backwards: bool, *past: Tensor | None
    ) -> Tensor:
        """The state with which each segment begins, from what it makes of zero and the product of its α.

        `past` is the same three of the gradient of v; its `ends` are overwritten too.
        """
        size, block = self.N * self.D, 128
        triton_forward.join_segments[(_parts(size, block), self.batch)](
            *(start, ends, products, *(past or (None, None, None)), size),
            SEGMENTS=self.segments,
            BACKWARDS=backwards,
            BLOCK=block,
            **_OPTIONS,
        )
        return ends


def _sum_of_states(partial: Tensor) -> Tensor:
    """(D, N) from (batch, segments, N, D)."""
    return partial.sum((0, 1)).T.contiguous()


def _in_parts(state: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """(batch, N, D) each: the state, and v, where it has that part."""
    if state is None:
        return None, None
    parts = (state,) if state.ndim == 3 else state.unbind(-1)
    h, v = (*(part.transpose(1, 2).contiguous() for part in parts), None)[:2]
    return h, v


def _with_groups(matrix: Tensor) -> Tensor:
    """B or C with a dimension for the group, unless it is constant."""
    return matrix.unsqueeze(1) if matrix.ndim == 3 else matrix


def _strides(*tensors: Tensor | None) -> list[tuple[int, ...]]:
    return [() if tensor is None else tensor.stride() for tensor in tensors]


def _how(options: Options, work: _Work, *tensors: Tensor | None) -> dict[str, Any]:
    """What else a kernel is compiled for.

    POSITION is the type that counts tokens. It holds every offset within a sample, of these tensors and of the states
    that are kept.
    """
    reach = max(sum(abs(t.stride(i)) * t.shape[i] for i in (-2, -1)) for t in tensors if t is not None)
    reach = max(reach, _parts(work.L, CHUNK) * work.N * work.D)
    weights, token, step, _, P, taps, _ = DISCRETIZATIONS[options.discretization]
    return {
        "WEIGHTS": weights,
        "TOKEN": token,
        "STEP": step,
        "P": P,
        "TAPS": taps,
        "SOFTPLUS": options.delta_softplus,
        "REVERSE": options.reverse,
        "POSITION": tl.int32 if reach < 2**31 - CHUNK else tl.int64,
        "UNROLL": UNROLL,
    }


def _registers(u: Tensor, options: Options, work: _Work) -> dict[str, Any]:
    """All that a thread can have, if the rule wants them. Only NVIDIA's compiler has such an option.

    Left alone, it makes room for more warps, and spills a few registers to get there.
    """
    nvidia = u.is_meta or (u.is_cuda and torch.version.hip is None)
    fits = work.constants()["num_warps"] * 32 * 255 <= 65536  # the registers of a processor
    crowded = DISCRETIZATIONS[options.discretization].crowded and work.segments == 1 and fits
    return {"maxnreg": 255} if crowded and nvidia else {}


def _parts(whole: int, part: int) -> int:
    """How many parts it takes."""
    return -(-whole // part)


def _power_of_two(size: int) -> int:
    """The next one."""
    return 1 << (size - 1).bit_length()
