"""The native CPU backend: the scan of csrc/scan.h."""

from __future__ import annotations

import functools
import threading
from ctypes import c_char_p, c_int, c_int32, c_int64
from itertools import accumulate
from struct import Struct
from typing import Any

import torch
from torch import Tensor

from ...discretize import get_discretization
from .. import native
from ..native import TENSOR, addresses, fields, in_huge_pages
from .arguments import Options, Tensors, empty_state, groups

_SCAN = Struct(f"@6i6q{TENSOR * 7}6P{TENSOR * 7}10P")
_NO_GRADIENTS = (*fields(None) * 7, *(0,) * 10)
CAREFUL = False
"""Never take the fast path of the kernel, which changes no bit; for testing."""

_KEPT_BYTES = 64 << 20
_kept = threading.local()


@functools.cache
def discretization_names() -> tuple[str, ...]:
    """The rules compiled into the library, in its own order."""
    names: list[str] = []
    while name := _library().tustin_discretization_name(len(names)):
        names.append(name.decode())
    return tuple(names)


@functools.cache
def chunk_length() -> int:
    """How many tokens lie between two states that the forward pass keeps for the backward pass."""
    length: int = _library().tustin_chunk_length()
    return length


def forward(
    tensors: Tensors, options: Options, chunk_states: Tensor | None, in_place: bool = False
) -> tuple[Tensor, Tensor]:
    """The output and the last state; fills `chunk_states` (batch, chunks, N, D) where it is given.

    With `in_place` the last state takes the place of the initial one, which is contiguous.
    """
    u = tensors.u
    rule = get_discretization(options.discretization)
    A, D, delta_bias, initial_state = _dense(tensors.A, tensors.D, tensors.delta_bias, _in_parts(tensors.initial_state))
    out = in_huge_pages(torch.empty_like(u))
    if in_place:
        last_state = initial_state if rule.taps == 1 else initial_state.movedim(0, -1)
    else:
        last_state = empty_state(u, A, rule)
    pointers = addresses(A, D, delta_bias, initial_state, last_state, chunk_states)
    _run("tustin_scan_forward", *_head(tensors, options), *fields(out), *pointers, *_NO_GRADIENTS)
    return out, last_state


def backward(
    d_out: Tensor, d_last_state: Tensor | None, tensors: Tensors, options: Options, chunk_states: Tensor
) -> Tensors:
    """The gradient of every tensor that was given."""
    u, delta, A, B, C, D, z, delta_bias, initial_state, mix = tensors
    A, D, delta_bias, initial_state = _dense(A, D, delta_bias, _in_parts(initial_state))
    d_last_state, chunk_states = _dense(_in_parts(d_last_state), chunk_states)
    batch, channels, L = u.shape
    N = A.shape[1]
    d_u, d_delta = in_huge_pages(torch.empty_like(u)), in_huge_pages(torch.empty_like(delta))
    d_z, d_mix = [None if t is None else in_huge_pages(torch.empty_like(t)) for t in (z, mix)]
    d_A = torch.empty_like(A)
    d_D, d_bias, d_state = [None if t is None else torch.empty_like(t) for t in (D, delta_bias, initial_state)]
    d_B, d_C = [m.new_empty(m.shape, dtype=A.dtype) if m.ndim == 2 else torch.empty_like(m) for m in (B, C)]

    slices = _library().tustin_slices(channels, groups(B), groups(C))
    per_matrix = [batch * (channels if m.ndim == 2 else slices * L) * N for m in (B, C)]
    sizes = [batch * channels * N, *per_matrix, batch * channels, batch * channels]  # of the sums for A, B, C, D, bias
    room = _room(sum(sizes) * A.dtype.itemsize)
    *partial, _ = accumulate([size * A.dtype.itemsize for size in sizes], initial=room.data_ptr())

    _run(
        "tustin_scan_backward",
        *_head(tensors, options),
        *fields(None),  # out
        *addresses(A, D, delta_bias, initial_state, None, chunk_states),
        *fields(d_out),
        *fields(d_u),
        *fields(d_delta),
        *fields(d_z),
        *_matrix(d_B),
        *_matrix(d_C),
        *fields(d_mix),
        *addresses(d_last_state, d_state, d_A, d_D, d_bias),
        *partial,
    )
    if d_state is not None and d_state.ndim == 4:
        d_state = d_state.movedim(0, -1).contiguous()
    return Tensors(d_u, d_delta, d_A, d_B.to(B.dtype), d_C.to(C.dtype), d_D, d_z, d_bias, d_state, d_mix)


def _room(size: int) -> Tensor:
    """So many bytes, uninitialised, kept from call to call unless they are many: fresh pages cost more than what is
    done there."""
    room: Tensor | None = getattr(_kept, "room", None)
    if room is None or room.numel() < size:
        room = in_huge_pages(torch.empty(size, dtype=torch.uint8))
        if size <= _KEPT_BYTES:
            _kept.room = room
    return room


def _head(tensors: Tensors, options: Options) -> list[int]:
    """The fields of TustinScan up to mix."""
    u, delta, A, B, C, _, z, *_, mix = tensors
    numbers = [_number(options.discretization), native.DTYPES[A.dtype], options.delta_softplus, options.reverse]
    shape = [native.threads(), CAREFUL, *u.shape, A.shape[1], groups(B), groups(C)]
    return [*numbers, *shape, *fields(u), *fields(delta), *fields(z), *_matrix(B), *_matrix(C), *fields(mix)]


def _matrix(matrix: Tensor) -> tuple[int, ...]:
    """The fields of B, C or a gradient: what is not constant gets its group dimension."""
    data, dtype, *stride = fields(matrix)
    return (data, dtype, stride[0], 0, *stride[1:3]) if matrix.ndim == 3 else (data, dtype, *stride)


def _in_parts(state: Tensor | None) -> Tensor | None:
    """The state of a rule of two samples with its parts one after the other, (2, batch, D, N)."""
    return state if state is None or state.ndim == 3 else state.movedim(-1, 0)


def _dense(*tensors: Any) -> tuple[Any, ...]:
    """Contiguous, as the library wants all but the large tensors."""
    return tuple([t if t is None else t.contiguous() for t in tensors])


def _run(function: str, *numbers: int) -> None:
    native.call(function, _SCAN.pack(*numbers), "selective_scan")


@functools.cache
def _number(discretization: str) -> int:
    return discretization_names().index(discretization)


@functools.cache
def _library() -> Any:
    native.function("tustin_chunk_length", c_int)
    native.function("tustin_slices", c_int64, c_int64, c_int64, c_int64)
    native.function("tustin_discretization_name", c_char_p, c_int32)
    return native.library()
