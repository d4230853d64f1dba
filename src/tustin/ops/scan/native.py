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

from ...discretize import BUILT_IN, Discretization
from .. import native
from ..native import TENSOR, address, fields, in_huge_pages

_SCAN = Struct(f"@6i6q{TENSOR * 6}6P{TENSOR * 6}10P")
_NO_GRADIENTS = (*fields(None) * 6, *(0,) * 10)
CAREFUL = False
"""Never take the fast path of the kernel, which changes no bit; for testing."""

_KEPT_BYTES = 64 << 20
_kept = threading.local()


def refuses(device: torch.device, discretization: Discretization) -> str | None:
    """Why it cannot run `discretization` on `device`, or None if it can."""
    if reason := native.refuses(device):
        return reason
    if discretization not in BUILT_IN:
        names = ", ".join(discretization_names())
        return f"discretization {discretization.name!r} is not one of those compiled into it ({names})"
    return None


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
    discretization: str,
    reverse: bool,
    chunk_states: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The output and the last state; fills `chunk_states` (batch, chunks, N, D) where it is given."""
    A, D, delta_bias, initial_state = _dense(A, D, delta_bias, initial_state)
    out = in_huge_pages(torch.empty_like(u))
    last_state = A.new_empty(*u.shape[:2], A.shape[1])
    head = _head(u, delta, A, B, C, z, delta_softplus, discretization, reverse)
    pointers = map(address, (A, D, delta_bias, initial_state, last_state, chunk_states))
    _run("tustin_scan_forward", *head, *fields(out), *pointers, *_NO_GRADIENTS)
    return out, last_state


def backward(
    d_out: Tensor,
    d_last_state: Tensor | None,
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
    discretization: str,
    reverse: bool,
    chunk_states: Tensor,
) -> dict[str, Tensor]:
    """The gradient of every argument that was given, by its name."""
    A, D, delta_bias, initial_state = _dense(A, D, delta_bias, initial_state)
    d_last_state, chunk_states = _dense(d_last_state, chunk_states)
    batch, channels, L = u.shape
    N = A.shape[1]
    gradients: dict[str, Tensor] = {}
    for name, like in (("u", u), ("delta", delta), ("z", z)):
        if like is not None:
            gradients[name] = in_huge_pages(torch.empty_like(like))
    for name, like in (("A", A), ("D", D), ("delta_bias", delta_bias), ("initial_state", initial_state)):
        if like is not None:
            gradients[name] = torch.empty_like(like)

    sums = {"A": batch * channels * N, "D": batch * channels, "delta_bias": batch * channels}
    groups = {"B": _groups(B), "C": _groups(C)}
    slices = _library().tustin_slices(channels, groups["B"], groups["C"])
    for name, matrix in (("B", B), ("C", C)):
        constant = not groups[name]
        gradients[name] = matrix.new_empty(matrix.shape, dtype=A.dtype) if constant else torch.empty_like(matrix)
        sums[name] = batch * (channels * N if constant else slices * L * N)
    sizes = [count * A.dtype.itemsize for count in sums.values()]
    room = _room(sum(sizes))
    partial = dict(zip(sums, accumulate(sizes, initial=room.data_ptr()), strict=False))

    _run(
        "tustin_scan_backward",
        *_head(u, delta, A, B, C, z, delta_softplus, discretization, reverse),
        *fields(None),  # out
        *map(address, (A, D, delta_bias, initial_state, None, chunk_states)),
        *fields(d_out),
        *fields(gradients["u"]),
        *fields(gradients["delta"]),
        *fields(gradients.get("z")),
        *_matrix(gradients["B"]),
        *_matrix(gradients["C"]),
        address(d_last_state),
        *map(address, map(gradients.get, ("initial_state", "A", "D", "delta_bias"))),
        *map(partial.__getitem__, ("A", "B", "C", "D", "delta_bias")),
    )
    for name, matrix in (("B", B), ("C", C)):
        gradients[name] = gradients[name].to(matrix.dtype)
    return gradients


def _room(size: int) -> Tensor:
    """So many bytes, uninitialised, kept from call to call unless they are many: fresh pages cost more than what is
    done there."""
    room: Tensor | None = getattr(_kept, "room", None)
    if room is None or room.numel() < size:
        room = in_huge_pages(torch.empty(size, dtype=torch.uint8))
        if size <= _KEPT_BYTES:
            _kept.room = room
    return room


def _head(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    z: Tensor | None,
    delta_softplus: bool,
    discretization: str,
    reverse: bool,
) -> list[int]:
    """The fields of TustinScan up to C."""
    numbers = [_number(discretization), native.DTYPES[A.dtype], delta_softplus, reverse, native.threads(), CAREFUL]
    shape = [*u.shape, A.shape[1], _groups(B), _groups(C)]
    return [*numbers, *shape, *fields(u), *fields(delta), *fields(z), *_matrix(B), *_matrix(C)]


def _matrix(matrix: Tensor) -> tuple[int, ...]:
    """The fields of B, C or a gradient: what is not constant gets its group dimension."""
    data, dtype, *stride = fields(matrix)
    return (data, dtype, stride[0], 0, *stride[1:3]) if matrix.ndim == 3 else (data, dtype, *stride)


def _dense(*tensors: Any) -> tuple[Any, ...]:
    """Contiguous, as the library wants all but the large tensors."""
    return tuple([t if t is None else t.contiguous() for t in tensors])


def _run(function: str, *numbers: int) -> None:
    native.call(function, _SCAN.pack(*numbers), "selective_scan")


@functools.cache
def _number(discretization: str) -> int:
    return discretization_names().index(discretization)


def _groups(matrix: Tensor) -> int:
    """0 for a constant matrix (D, N), 1 for one per token (batch, N, L), G for (batch, G, N, L)."""
    return matrix.shape[1] if matrix.ndim == 4 else matrix.ndim - 2


@functools.cache
def _library() -> Any:
    native.function("tustin_chunk_length", c_int)
    native.function("tustin_slices", c_int64, c_int64, c_int64, c_int64)
    native.function("tustin_discretization_name", c_char_p, c_int32)
    return native.library()
