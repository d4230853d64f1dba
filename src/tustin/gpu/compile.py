"""Compile ahead of time exactly what would be launched: the launching code runs on tensors without memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from ..discretize.base import unknown

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
"""A100, H100, B200 and MI300X."""


def target(name: str) -> GPUTarget:
    """The target of that name."""
    if name not in TARGETS:
        raise ValueError(unknown("target", name, list(TARGETS)))
    return TARGETS[name]


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel as the launching code asked for it."""

    kernel: Any
    arguments: tuple[Any, ...]
    grid: tuple[int, ...]
    options: dict[str, Any]

    @property
    def programs(self) -> int:
        """How many instances of the kernel run."""
        count = 1
        for size in self.grid:
            count *= size
        return count

    @property
    def bytes(self) -> int:
        """Of all tensors that the kernel is given: what must pass between memory and the GPU at least once."""
        tensors = [a for a in (*self.arguments, *self.options.values()) if hasattr(a, "element_size")]
        return sum(t.numel() * t.element_size() for t in tensors)


def launches(call: Callable[[], object]) -> list[Launch]:
    """What `call` launches, in order. Nothing runs, so its tensors may be on the device "meta"."""
    found: list[Launch] = []

    def record(kernel: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> None:
        found.append(Launch(kernel, arguments, grid, options))

    with mock.patch.object(JITFunction, "run", record):
        call()
    return found


def compile_for(target: GPUTarget, launch: Launch) -> Any:
    """Triton's compiled kernel, with its code in `asm` and what it needs in `metadata`."""
    with _compiling_for(target):
        return launch.kernel.warmup(*launch.arguments, grid=launch.grid, **launch.options)


class _NoGPU:
    """As much of a driver as the compiler asks for."""

    def __init__(self, target: GPUTarget) -> None:
        self.target = target

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> str:
        return str(self.target)  # Triton keeps what it has compiled by device

    def get_current_stream(self, device: str) -> int:
        return 0


@contextmanager
def _compiling_for(target: GPUTarget) -> Iterator[None]:
    with mock.patch.object(driver, "_active", _NoGPU(target)):
        yield
