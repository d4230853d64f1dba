"""Compile ahead of time exactly what would be launched: the launching code runs on tensors without memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any
from unittest import mock

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from ...ops.accelerator import interpreted
from . import described


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel as the launching code asked for it."""

    kernel: Any
    arguments: tuple[Any, ...]
    grid: tuple[int, ...]
    options: dict[str, Any]
    """What the kernel is compiled for, by name."""

    @property
    def programs(self) -> int:
        """How many instances of the kernel run."""
        return prod(self.grid)

    @property
    def bytes(self) -> int:
        """The size of all tensors that it is given: what must come from memory or go there, each number once."""
        return sum(t.numel() * t.element_size() for t in self.arguments if isinstance(t, torch.Tensor))

    def argument(self, name: str) -> Any:
        """One of the arguments."""
        return self.arguments[self.kernel.arg_names.index(name)]


def launches(call: Callable[[], object]) -> list[Launch]:
    """What `call` launches, in order. Nothing runs, so its tensors may be on the device "meta"."""
    if interpreted():
        raise RuntimeError(
            "TRITON_INTERPRET=1 is set, so Triton interprets the kernels and does not compile them: unset it"
        )
    found: list[Launch] = []

    def record(kernel: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> None:
        found.append(Launch(kernel, arguments, grid, options))

    with mock.patch.object(JITFunction, "run", record):
        call()
    return found


def compile_for(target: str, launch: Launch) -> Any:
    """Triton's compiled kernel, with its code in `asm` and what it needs in `metadata`."""
    gpu = GPUTarget(*described(target))
    options = {name: value for name, value in launch.options.items() if name != "maxnreg" or gpu.backend == "cuda"}
    with mock.patch.object(driver, "_active", _NoGPU(gpu)):
        return launch.kernel.warmup(*launch.arguments, grid=launch.grid, **options)


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
