"""The limits of the machine, measured in the same run, and how close to them a scan could come.

docs/performance.md explains the model: what is counted, and what is left out.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .. import doctor
from ..ops import native
from ..report.measurement import Case
from .workloads import Cell, N, missing

GEMM_SIZE = 1024
GEMM_FLOP = 2 * GEMM_SIZE**3
COPY_BYTES = 1 << 26  # beyond the last-level cache
_STAT = Path("/proc/stat")

MULTIPLICATIONS = {
    "mamba": 9,  # e^z − 1 with the help of a table (6), the recurrence (2), the output
    "zoh": 14,  # z, e^z − 1 (9), B·u, the recurrence (2), the output
    "foh": 16,  # z, e^z − 1 and e^z − 1 − z (10), β, B·u, the recurrence (2), the output
    "pol": 16,  # as zoh, and another term of β (2)
    "hoh": 17,  # as pol, and another
    "hoh3": 18,  # as hoh, and another
    "bil": 6,  # z, 1 − z/2, B·u, the recurrence (2), the output; and a division
    "rk4": 9,  # as rk4_raw, and the limited input
    "true_foh": 17,  # z, e^z − 1 − z (9), B·u, the slope, weights (2), the recurrence (2), the output
    "true_bil": 7,  # z, 1 − z/2, z·h, both samples (2), the recurrence, the output; and a division
    "exptrap": 10,  # as mamba, and the sample before
    "rk4_raw": 8,  # z, a cubic (3), B·u, the recurrence (2), the output
}
"""Multiplications, fused with an addition or not, per update of a state in the forward pass of
csrc/discretizations.hpp, where no e^z leaves the normal numbers; the output is y += C·h. The inner loops that GCC 12
makes of it have exactly these."""
DIVISIONS = {"bil": 1, "true_bil": 1}

GEMM, GEMM_ONE_THREAD, COPY = "gemm", "gemm_one_thread", "copy"
WORK = {GEMM: GEMM_FLOP, GEMM_ONE_THREAD: GEMM_FLOP, COPY: 2 * COPY_BYTES}
"""Of one call of each limit: multiplications and additions, or bytes read and written."""


@dataclass(frozen=True)
class Limit(Case, kind="limit"):
    """One of the limits by its name, as something to time."""

    name: str


def make_call(limit: Limit) -> Callable[[], object]:
    """What to time to learn the limit."""
    if limit.name == COPY:
        source = torch.ones(COPY_BYTES // 4, device=limit.device)
        return functools.partial(torch.empty_like(source).copy_, source)
    a, b = torch.randn(2, GEMM_SIZE, GEMM_SIZE, generator=torch.Generator().manual_seed(0)).to(limit.device)
    return functools.partial(torch.mm, a, b, out=torch.empty_like(a))


@dataclass(frozen=True)
class Rate:
    """How one rule's forward pass stands to the limits."""

    discretization: str
    updates: float
    """Updates of a state per second."""
    gemm_ratio: float
    """FLOP of a matrix product in the time of one update."""
    attainable: float
    """Updates, if each of their multiplications took as long as one of the matrix product."""
    share: float
    traffic: float
    """Bytes per second between memory and kernel."""
    traffic_share: float


def rate(cell: Cell, seconds: float, gemm: float, copy: float) -> Rate:
    """The rate of one measurement of the forward pass, beside the FLOP and the bytes per second of the limits."""
    updates = cell.updates / seconds
    per_token = 3 * getattr(torch, cell.dtype).itemsize  # u and delta in, the output out; B and C are few
    traffic = updates / N * per_token
    attainable = gemm / (2 * MULTIPLICATIONS[cell.discretization])
    share, traffic_share = updates / attainable, traffic / copy
    return Rate(cell.discretization, updates, gemm / updates, attainable, share, traffic, traffic_share)


def describe(device: str, peer: str) -> dict[str, Any]:
    """What the numbers depend on, the load by others included, so before the run; neither user nor host.

    `peer` is the package that others are compared with.
    """
    facts = doctor.collect()
    return {
        "versions": facts["versions"] | {peer: _version(peer)},
        "platform": facts["platform"],
        "cpu": facts["cpu"],
        "gpu": None if device == "cpu" else torch.get_device_module(device).get_device_name(),
        "load": _load(),
        "native_level": None if missing("native") else native.cpu_level(),
    }


def needs(packages: Sequence[str], how: str) -> None:
    """RuntimeError that says how to get a package that is not installed."""
    for name in packages:
        if importlib.util.find_spec(name) is None:
            raise RuntimeError(f"{name} is not installed; get it with '{how}'")


def _load(seconds: float = 0.5) -> float:
    """How many cores others keep busy; where the system does not tell, its average number of running processes."""
    if not _STAT.exists():
        return os.getloadavg()[0]
    before = _busy_ticks()
    time.sleep(seconds)
    return (_busy_ticks() - before) / os.sysconf("SC_CLK_TCK") / seconds


def _busy_ticks() -> int:
    """Since the start of the system, on all cores, the time that another system had of them included."""
    user, nice, system, _idle, _waiting, *others = map(int, _STAT.read_text(encoding="ascii").split()[1:9])
    return user + nice + system + sum(others)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
