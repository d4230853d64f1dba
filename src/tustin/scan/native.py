"""The native CPU backend: the C interface of csrc/scan.h, called through ctypes.

The library links neither libtorch nor libpython. It shares torch's OpenMP runtime, because torch has loaded one under
the same name before, and runs on as many threads as torch does; the results do not depend on how many.
"""

from __future__ import annotations

import ctypes
import functools
import os
from ctypes import POINTER, Structure, c_char_p, c_int, c_int32, c_int64, c_void_p
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..discretize import BUILT_IN, Method

LEVEL_VARIABLE = "TUSTIN_CPU_LEVEL"
LIBRARY_VARIABLE = "TUSTIN_NATIVE_LIBRARY"

_DTYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
_forked = False


class _Tensor(Structure):
    _fields_ = [("data", c_void_p), ("dtype", c_int32), ("stride", c_int64 * 4)]


class _Scan(Structure):
    _fields_ = [
        *((name, c_int32) for name in ("method", "real", "delta_softplus", "reverse", "threads")),
        *((name, c_int64) for name in ("batch", "D", "L", "N", "groups_B", "groups_C")),
        *((name, _Tensor) for name in ("u", "delta", "z", "B", "C", "out")),
        *((name, c_void_p) for name in ("A", "D_skip", "delta_bias", "initial_state", "last_state", "chunk_states")),
        *((name, _Tensor) for name in ("d_out", "d_u", "d_delta", "d_z", "d_B", "d_C")),
        *((name, c_void_p) for name in ("d_last_state", "d_initial_state", "d_A", "d_D", "d_delta_bias")),
        *((name, c_void_p) for name in ("partial_A", "partial_B", "partial_C", "partial_D", "partial_bias")),
    ]


def missing() -> str | None:
    """Why the library cannot be used, or None if it can."""
    try:
        _library()
    except OSError as error:
        return str(error)
    return None


def refuses(device: torch.device, method: Method) -> str | None:
    """Why it cannot run `method` on `device`, or None if it can."""
    if missing():
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


def cpu_level() -> str:
    """The instruction set in use: "v4" (AVX-512), "v3" (AVX2 and FMA), "v2" (SSE4.2) or "baseline"."""
    level: bytes = _library().tustin_cpu_level()
    return level.decode()


def set_cpu_level(name: str) -> None:
    """Use the code compiled for another instruction set, for testing; TUSTIN_CPU_LEVEL does it at the start."""
    if _library().tustin_set_cpu_level(name.encode()):
        raise ValueError(f"CPU level {name!r} is unknown or not available on this CPU; levels: baseline, v2, v3, v4")


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

    slices = _library().tustin_slices(channels, call.scan.groups_B, call.scan.groups_C)
    for name, matrix in (("B", B), ("C", C)):
        constant = matrix.ndim == 2
        gradients[name] = matrix.new_empty(matrix.shape, dtype=A.dtype if constant else matrix.dtype)
        call.matrix(f"d_{name}", gradients[name])
        call.pointer(f"partial_{name}", A.new_empty(batch, *((channels, N) if constant else (slices, L, N))))

    gradients["A"] = torch.empty_like(A, memory_format=torch.contiguous_format)
    gradients |= {name: A.new_empty(channels) for name, t in (("D", D), ("delta_bias", delta_bias)) if t is not None}
    if initial_state is not None:
        gradients["initial_state"] = A.new_empty(batch, channels, N)
    for name in ("A", "D", "delta_bias", "initial_state"):
        call.pointer(f"d_{name}", gradients.get(name))
    call.pointer("partial_A", A.new_empty(batch, channels, N))
    call.pointer("partial_D", A.new_empty(batch, channels))
    call.pointer("partial_bias", A.new_empty(batch, channels))
    call.run("tustin_scan_backward")
    return gradients | {"B": gradients["B"].to(B.dtype), "C": gradients["C"].to(C.dtype)}


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
            real=_DTYPES[A.dtype],
            delta_softplus=delta_softplus,
            reverse=reverse,
            threads=1 if _forked else torch.get_num_threads(),
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
            strides = (*tensor.stride(), 0, 0, 0, 0)[:4]
            setattr(self.scan, name, _Tensor(tensor.data_ptr(), _DTYPES[tensor.dtype], strides))

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
    path = _library_path()
    library = ctypes.CDLL(str(path))
    for name, result, arguments in (
        ("tustin_scan_forward", c_int, [POINTER(_Scan)]),
        ("tustin_scan_backward", c_int, [POINTER(_Scan)]),
        ("tustin_chunk_length", c_int, []),
        ("tustin_slices", c_int64, [c_int64, c_int64, c_int64]),
        ("tustin_method_name", c_char_p, [c_int32]),
        ("tustin_cpu_level", c_char_p, []),
        ("tustin_set_cpu_level", c_int, [c_char_p]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    level = os.environ.get(LEVEL_VARIABLE)
    if level and library.tustin_set_cpu_level(level.encode()):
        raise OSError(f"{LEVEL_VARIABLE}={level} is unknown or not available on this CPU (baseline, v2, v3, v4)")
    return library


def _library_path() -> Path:
    if chosen := os.environ.get(LIBRARY_VARIABLE):
        return Path(chosen)
    import tustin

    for root in tustin.__path__:  # two places when installed in editable mode
        if (path := Path(root) / "_native.so").exists():
            return path
    raise OSError("the native library was not built; reinstall tustin with a C++ compiler and without TUSTIN_NO_NATIVE")


def _after_fork_in_child() -> None:
    global _forked
    _forked = True  # the parent's OpenMP threads do not exist here, and waiting for them would hang


os.register_at_fork(after_in_child=_after_fork_in_child)
