"""The native CPU backend: the scan of csrc/scan.h."""

from __future__ import annotations

import ctypes
import functools
import threading
from ctypes import POINTER, Structure, c_char_p, c_int, c_int32, c_int64, c_void_p
from typing import Any

import torch
from torch import Tensor

from .. import native
from ..discretize import BUILT_IN, Method
from ..native import StridedTensor

_KEPT_BYTES = 64 << 20
_kept = threading.local()


class _Scan(Structure):
    _fields_ = [
        *((name, c_int32) for name in ("method", "real", "delta_softplus", "reverse", "threads")),
        *((name, c_int64) for name in ("batch", "D", "L", "N", "groups_B", "groups_C")),
        *((name, StridedTensor) for name in ("u", "delta", "z", "B", "C", "out")),
        *((name, c_void_p) for name in ("A", "D_skip", "delta_bias", "initial_state", "last_state", "chunk_states")),
        *((name, StridedTensor) for name in ("d_out", "d_u", "d_delta", "d_z", "d_B", "d_C")),
        *((name, c_void_p) for name in ("d_last_state", "d_initial_state", "d_A", "d_D", "d_delta_bias")),
        *((name, c_void_p) for name in ("partial_A", "partial_B", "partial_C", "partial_D", "partial_bias")),
    ]


def refuses(device: torch.device, method: Method) -> str | None:
    """Why it cannot run `method` on `device`, or None if it can."""
    if native.missing():
        return "its library is missing"
    if device.type != "cpu":
        return f"it runs on the CPU, and the tensors are on {device}"
    if method not in BUILT_IN:
        return f"method {method.name!r} is not one of those compiled into it ({', '.join(method_names())})"
    return None


@functools.cache
def method_names() -> tuple[str, ...]:
    """The methods compiled into the library, in its own order."""
    names: list[str] = []
    while name := _library().tustin_method_name(len(names)):
        names.append(name.decode())
    return tuple(names)


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
    method: str,
    reverse: bool,
    chunk_states: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The output and the last state; fills `chunk_states` (batch, chunks, N, D) where it is given."""
    call = _Call(u, delta, A, B, C, D, z, delta_bias, initial_state, delta_softplus, method, reverse, chunk_states)
    out = torch.empty_like(u)
    last_state = A.new_empty(*u.shape[:2], A.shape[1])
    call.tensor("out", out)
    call.pointer("last_state", last_state)
    call.run("tustin_scan_forward")
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
    method: str,
    reverse: bool,
    chunk_states: Tensor,
) -> dict[str, Tensor]:
    """The gradient of every argument that was given, by its name."""
    call = _Call(u, delta, A, B, C, D, z, delta_bias, initial_state, delta_softplus, method, reverse, chunk_states)
    batch, channels, L = u.shape
    N = A.shape[1]
    call.tensor("d_out", d_out)
    call.pointer("d_last_state", d_last_state)

    gradients = {"u": torch.empty_like(u), "delta": torch.empty_like(delta)}
    if z is not None:
        gradients["z"] = torch.empty_like(z)
    for name, gradient in gradients.items():
        call.tensor(f"d_{name}", gradient)

    sums = batch * channels
    partials = {"partial_A": sums * N, "partial_D": sums, "partial_bias": sums}
    slices = _library().tustin_slices(channels, call.scan.groups_B, call.scan.groups_C)
    for name, matrix in (("B", B), ("C", C)):
        constant = matrix.ndim == 2
        gradients[name] = matrix.new_empty(matrix.shape, dtype=A.dtype) if constant else torch.empty_like(matrix)
        call.matrix(f"d_{name}", gradients[name])
        partials[f"partial_{name}"] = batch * (channels * N if constant else slices * L * N)

    gradients["A"] = torch.empty_like(A, memory_format=torch.contiguous_format)
    gradients |= {name: A.new_empty(channels) for name, t in (("D", D), ("delta_bias", delta_bias)) if t is not None}
    if initial_state is not None:
        gradients["initial_state"] = A.new_empty(batch, channels, N)
    for name in ("A", "D", "delta_bias", "initial_state"):
        call.pointer(f"d_{name}", gradients.get(name))
    for name, room in zip(partials, _scratch(A.dtype, *partials.values()), strict=True):
        call.pointer(name, room)
    call.run("tustin_scan_backward")
    return gradients | {"B": gradients["B"].to(B.dtype), "C": gradients["C"].to(C.dtype)}


def _scratch(dtype: torch.dtype, *sizes: int) -> tuple[Tensor, ...]:
    """Uninitialised room, kept from call to call unless it is huge: fresh pages cost more than what is done there."""
    count = sum(sizes) * dtype.itemsize
    room: Tensor | None = getattr(_kept, "room", None)
    if room is None or room.numel() < count:
        room = torch.empty(count, dtype=torch.uint8)
        if count <= _KEPT_BYTES:
            _kept.room = room
    pieces: tuple[Tensor, ...] = room[:count].view(dtype).split(sizes)
    return pieces


class _Call:
    """One call of the library: its argument struct, and the tensors that must live until it returns."""

    def __init__(
        self,
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
    ) -> None:
        self.kept: list[Tensor] = []
        self.scan = _Scan(
            method=method_names().index(method),
            real=native.DTYPES[A.dtype],
            delta_softplus=delta_softplus,
            reverse=reverse,
            threads=native.threads(),
            batch=u.shape[0],
            D=u.shape[1],
            L=u.shape[2],
            N=A.shape[1],
            groups_B=_groups(B),
            groups_C=_groups(C),
        )
        for name, tensor in (("u", u), ("delta", delta), ("z", z)):
            self.tensor(name, tensor)
        self.matrix("B", B)
        self.matrix("C", C)
        for name, tensor in (
            ("A", A),
            ("D_skip", D),
            ("delta_bias", delta_bias),
            ("initial_state", initial_state),
            ("chunk_states", chunk_states),
        ):
            self.pointer(name, tensor)

    def tensor(self, name: str, tensor: Tensor | None) -> None:
        """A tensor of any strides and dtype; left NULL if there is none."""
        if tensor is not None:
            self.kept.append(tensor)
            setattr(self.scan, name, native.strided(tensor))

    def matrix(self, name: str, tensor: Tensor) -> None:
        """B or C: what is not constant gets its group dimension."""
        self.tensor(name, tensor.unsqueeze(1) if tensor.ndim == 3 else tensor)

    def pointer(self, name: str, tensor: Tensor | None) -> None:
        """A contiguous tensor of the compute dtype; left NULL if there is none."""
        if tensor is not None:
            tensor = tensor.contiguous()
            self.kept.append(tensor)
            setattr(self.scan, name, tensor.data_ptr())

    def run(self, function: str) -> None:
        if getattr(_library(), function)(ctypes.byref(self.scan)):
            raise MemoryError("selective_scan: the native backend could not allocate its scratch memory")


def _groups(matrix: Tensor) -> int:
    """0 for a constant matrix (D, N), 1 for one per token (batch, N, L), G for (batch, G, N, L)."""
    return matrix.shape[1] if matrix.ndim == 4 else matrix.ndim - 2


@functools.cache
def _library() -> Any:
    native.function("tustin_scan_forward", c_int, POINTER(_Scan))
    native.function("tustin_scan_backward", c_int, POINTER(_Scan))
    native.function("tustin_chunk_length", c_int)
    native.function("tustin_slices", c_int64, c_int64, c_int64, c_int64)
    native.function("tustin_method_name", c_char_p, c_int32)
    return native.library()
