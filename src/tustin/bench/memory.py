"""How much memory a call of a model needs beside its weights, and how much one with more images would need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch

from ..report.speed import ModelCase
from ..report.table import NOTHING
from . import models, workloads

ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": "16384", "MALLOC_TRIM_THRESHOLD_": "4096"}
"""Of the process that measures: glibc then keeps nothing of a call that could hide what the next one needs."""

USABLE = 0.8
"""Share of the free memory that a call may need: allocators leave holes, and others want some, too."""

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def growth(case: ModelCase) -> int | None:
    """By how much the memory of this process grows during one call; None where the system does not tell."""
    torch.set_num_threads(case.threads)
    models.make_call(replace(case, batch=1, img_size=models.smallest_size(case.candidate.model)))()  # libraries settle
    call = models.make_call(case)
    if case.device != "cpu":
        device = torch.get_device_module(case.device)
        before = device.memory_allocated()
        device.reset_peak_memory_stats()
        call()
        return int(device.max_memory_allocated()) - int(before)
    try:
        _RESET.write_text("5")  # the highest so far is forgotten
        before = _status("VmRSS")
        call()
        return _status("VmHWM") - before
    except OSError:  # not Linux, or not allowed
        return None


def _status(name: str) -> int:
    return 1024 * int(_STATUS.read_text(encoding="ascii").split(f"{name}:")[1].split()[0])


def too_large(case: ModelCase, known: Mapping[ModelCase, int]) -> str | None:
    """Why a case should not be tried, told by the next smaller ones: memory grows linearly with the pixels."""
    smaller = sorted((other for other in known if other.pixels < case.pixels), key=lambda other: other.pixels)
    if not smaller:
        return None
    last = smaller[-1]
    needed = known[last] * case.pixels / last.pixels
    if len(smaller) > 1:
        slope = (known[last] - known[smaller[-2]]) / (last.pixels - smaller[-2].pixels)
        needed = known[last] + max(0.0, slope) * (case.pixels - last.pixels)
    return workloads.too_large(needed, case.device, USABLE)


def memory_text(peak: float | None) -> str:
    """In MiB, as exactly as a system counts that updates the peak of a process now and then."""
    if peak is None:
        return NOTHING
    return f"{peak / 2**20:.0f}" if peak >= 2 << 20 else "< 2"
