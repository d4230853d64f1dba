"""The library of native CPU kernels, behind the plain C interface of csrc/, called through ctypes.

It links neither libtorch nor libpython. It shares torch's OpenMP runtime, because torch has loaded one under the same
name before, and runs on as many threads as torch does; the results do not depend on how many.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
from ctypes import c_char_p, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .accelerator import interpreted

LEVEL_VARIABLE = "TUSTIN_CPU_LEVEL"
LIBRARY_VARIABLE = "TUSTIN_NATIVE_LIBRARY"
MEMORY_VARIABLE = "TUSTIN_KEEP_MEMORY"
LEVELS = ("v4", "v3", "v2", "baseline")
"""Every instruction set that the library can be compiled for, best first. All but v2 give the same bits."""

DTYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
"""What the kernels read and write, by its number in csrc/scan.h."""

_ABSENT = (0,) * 6
_LARGE_BYTES = 8 << 20
_HUGE_PAGES: int | None = getattr(mmap, "MADV_HUGEPAGE", None)  # Linux only
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h
_forked = False


TENSOR = "Pi4x4q"
"""TustinTensor of csrc/scan.h for `struct`, which packs all the arguments of a call at once, faster than ctypes."""


def fields(tensor: Tensor | None) -> tuple[int, ...]:
    """What a `TENSOR` holds of a tensor of at most four dimensions, any strides and any of `DTYPES`; zeros of none.

    The tensor must outlive the call.
    """
    if tensor is None:
        return _ABSENT
    return tensor.data_ptr(), DTYPES[tensor.dtype], *tensor.stride(), *_ABSENT[2 + tensor.ndim :]


def addresses(*tensors: Tensor | None) -> list[int]:
    """Where contiguous tensors lie, 0 for none; they must outlive the call."""
    return [0 if t is None else t.data_ptr() for t in tensors]


def in_huge_pages(room: Tensor) -> Tensor:
    """The same tensor, fresh and not yet written to; if it is large it will lie in huge pages, which cost less time."""
    if room.nbytes >= _LARGE_BYTES and _HUGE_PAGES is not None:
        first = -(-room.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        whole_pages = (room.data_ptr() + room.nbytes - first) // mmap.PAGESIZE * mmap.PAGESIZE
        _madvise()(first, whole_pages, _HUGE_PAGES)  # a hint; the system may ignore it
    return room


@functools.cache
def _madvise() -> Any:
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = c_void_p, c_size_t, c_int
    return madvise


def missing() -> str | None:
    """Why the library cannot be used, or None if it can."""
    try:
        library()
    except OSError as error:
        return str(error)
    return None


def refuses(device: torch.device) -> str | None:
    """Why the kernels cannot run on `device`, or None if they can."""
    if device.type != "cpu":
        return missing() or f"it runs on the CPU, and the tensors are on {device}"
    return "TRITON_INTERPRET=1 gives the CPU to Triton's interpreter" if interpreted() else missing()


def cpu_level() -> str:
    """The instruction set in use: "v4" (AVX-512), "v3" (AVX2 and FMA), "v2" (SSE4.2) or "baseline"."""
    level: bytes = library().tustin_cpu_level()
    return level.decode()


def set_cpu_level(name: str) -> None:
    """Use the code compiled for another instruction set, for testing; TUSTIN_CPU_LEVEL does it at the start."""
    if library().tustin_set_cpu_level(name.encode()):
        raise ValueError(f"CPU level {name!r} is unknown or not available on this CPU; levels: {', '.join(LEVELS)}")


def cpu_levels() -> list[str]:
    """The instruction sets that this library and this CPU have, best first."""
    before = cpu_level()
    try:
        return [level for level in LEVELS if not library().tustin_set_cpu_level(level.encode())]
    finally:
        set_cpu_level(before)


def threads() -> int:
    """How many threads a call may use: torch's number, and one in a forked child."""
    return 1 if _forked else torch.get_num_threads()


def function(name: str, result: Any, *arguments: Any) -> Any:
    """A function of the library, with its types declared."""
    found = getattr(library(), name)
    found.restype, found.argtypes = result, arguments
    return found


def call(name: str, arguments: bytes, operator: str) -> None:
    """Call a function of the library that takes one packed struct, and fails only where memory runs out."""
    if _taking_a_struct(name, len(arguments))(arguments):
        raise MemoryError(f"{operator}: the native backend could not allocate its scratch memory")


@functools.cache
def _taking_a_struct(name: str, size: int) -> Any:
    try:
        matches = function("tustin_argument_bytes", c_int64, c_char_p)(name.encode()) == size
    except AttributeError:  # it is older than that function
        matches = False
    if not matches:
        raise RuntimeError(f"the native library {_library_path()} was built from other sources; reinstall tustin")
    return function(name, c_int, c_char_p)


@functools.cache
def library() -> Any:
    """The loaded library, on the CPU level that the environment asks for; OSError if there is none."""
    loaded = ctypes.CDLL(str(_library_path()))
    loaded.tustin_cpu_level.restype, loaded.tustin_cpu_level.argtypes = c_char_p, []
    loaded.tustin_set_cpu_level.restype, loaded.tustin_set_cpu_level.argtypes = c_int, [c_char_p]
    level = os.environ.get(LEVEL_VARIABLE)
    if level and loaded.tustin_set_cpu_level(level.encode()):
        raise OSError(f"{LEVEL_VARIABLE}={level} is unknown or not available on this CPU ({', '.join(LEVELS)})")
    if os.environ.get(MEMORY_VARIABLE) != "0":
        _keep_freed_memory()
    return loaded


def _keep_freed_memory() -> None:
    """Have glibc keep up to 1 GiB of freed memory for the next tensor, unless the environment says what it should do.

    For the whole process, because PyTorch frees and allocates tensors of megabytes all the time, and glibc by itself
    gives each one back, so that the next pays for every page anew.
    """
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return
    with contextlib.suppress(AttributeError, TypeError):  # not glibc; on Windows no process is a library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_TRIM_THRESHOLD, 1 << 30)
        if not mallopt(_M_MMAP_THRESHOLD, 256 << 20):
            mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # the most that glibc before 2.35 takes


def _library_path() -> Path:
    if chosen := os.environ.get(LIBRARY_VARIABLE):
        return Path(chosen)
    from tustin import ops

    for root in ops.__path__:  # two places when installed in editable mode
        if (path := Path(root) / "_native.so").exists():
            return path
    raise OSError("the native library was not built; reinstall tustin with a C++ compiler and without TUSTIN_NO_NATIVE")


def _after_fork_in_child() -> None:
    global _forked
    _forked = True  # the parent's OpenMP threads do not exist here, and waiting for them would hang


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork_in_child)
