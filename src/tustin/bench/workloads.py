"""What is timed: one scan on realistic inputs, by each backend and by the peer, with the same work for all.

On the CPU the peer is mambapy's selective scan, called and not copied: e^{ΔA} and ΔBx as (batch, L, D, N) tensors, its
parallel scan over them, the product with C and the skip D·x. It knows neither softplus nor gate, so ours does without
them too where the two are compared. On a GPU the peer is mamba_ssm's `selective_scan_fn`, which has both.
"""

from __future__ import annotations

import functools
import importlib
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from ..ops import native
from ..ops.scan import BACKENDS, selective_scan
from ..report.measurement import Case, Count

D, N = 384, 16  # ViM-tiny's
PEER = "mambapy"
PEER_KEEPING = "mambapy, memory kept"
"""The same, where freed memory is kept for the next tensor: what another allocator than glibc's could gain for it."""
GPU_PEER = "mamba_ssm"
PEERS = dict.fromkeys((PEER, PEER_KEEPING), "mambapy.mamba") | {GPU_PEER: "mamba_ssm.ops.selective_scan_interface"}
"""The modules that have their scans."""
COMPILED = "compiled"
ENVIRONMENTS = {PEER_KEEPING: {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}}
"""What the process of a backend must find in its environment."""
LONGEST_COMPILED = 64
"""torch.compile unrolls the loop over time: minutes of compiling, soon hours, for lengths beyond this one."""


@dataclass(frozen=True)
class Cell(Case, kind="scan"):
    """A call of the scan."""

    backend: str
    """A backend of `selective_scan`, "compiled" for torch.compile of the reference, or the peer."""
    discretization: str
    batch: Count
    L: Count
    backward: bool
    dtype: str
    layout: str
    fused: bool = False
    """With all that the kernel can do at once: bias and softplus of delta, and the gate."""
    level: str = ""
    """The instruction set of the native backend; the best one if not given."""

    @property
    def updates(self) -> int:
        """How many times one number of a state is updated."""
        return self.batch * self.L * D * N

    @property
    def mode(self) -> str:
        return "forward+backward" if self.backward else "forward"

    @property
    def work(self) -> Cell:
        return replace(self, discretization="", level="")

    @property
    def compiled(self) -> bool:
        return self.backend == COMPILED


def peer_of(cell: Cell) -> Cell:
    """The peer's measurement for the same work, in the layout that is its own; mambapy takes no half precision."""
    if cell.device != "cpu":
        dtype = "float32" if cell.dtype == "float64" else cell.dtype
        return replace(cell, backend=GPU_PEER, discretization="mamba", dtype=dtype, layout="token-last")
    dtype = "float64" if cell.dtype == "float64" else "float32"
    return replace(cell, backend=PEER, discretization="mamba", dtype=dtype, layout="channel-last", fused=False)


@functools.cache
def make_inputs(batch: int, L: int, dtype: str, layout: str, device: str = "cpu") -> SimpleNamespace:
    """The tensors of one shape, as `selective_scan` wants them: (batch, D, L) and (batch, N, L).

    The same numbers every time: steps from 0.001 to 0.1 and A from −1 to −N, as Mamba is initialised. Bias and softplus
    turn `raw_delta` into `delta`.
    """
    generator = torch.Generator().manual_seed(0)
    kind = getattr(torch, dtype)
    wide = torch.promote_types(kind, torch.float32)

    def dense(values: Tensor) -> Tensor:  # (batch, L, …) in memory, or transposed
        values = values.to(device, kind).transpose(1, 2)
        return (values if layout == "channel-last" else values.contiguous()).requires_grad_()

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    delta = torch.exp(math.log(0.001) + math.log(100) * torch.rand(batch, L, D, generator=generator))
    bias = torch.full((D,), -4.0)
    return SimpleNamespace(
        u=dense(normal(batch, L, D)),
        delta=dense(delta),
        A=-torch.arange(1, N + 1, dtype=wide, device=device).repeat(D, 1).requires_grad_(),
        B=dense(normal(batch, L, N)),
        C=dense(normal(batch, L, N)),
        D=torch.ones(D, dtype=wide, device=device, requires_grad=True),
        z=dense(normal(batch, L, D)),
        bias=bias.to(device, wide).requires_grad_(),
        raw_delta=dense(torch.log(torch.expm1(delta)) - bias),
        d_out=dense(normal(batch, L, D)).detach(),
    )


def make_call(cell: Cell) -> Callable[[], object]:
    """One call of what the cell stands for, ready to be timed; raises if it cannot be had."""
    own = make_inputs(cell.batch, cell.L, cell.dtype, cell.layout, cell.device)
    arguments = (own.u, own.raw_delta if cell.fused else own.delta, own.A, own.B, own.C, own.D)
    arguments += (own.z, own.bias) if cell.fused else ()
    d_out = own.d_out
    if cell.backend in (PEER, PEER_KEEPING):  # it takes (batch, L, …), and knows no more than six arguments
        arguments = tuple(t.detach().transpose(1, 2).requires_grad_() if t.ndim == 3 else t for t in arguments)
        d_out = d_out.transpose(1, 2)
    scan = _scan(cell)

    def forward() -> object:
        with torch.no_grad():
            return scan(*arguments)

    def forward_and_backward() -> object:
        return torch.autograd.grad(scan(*arguments), arguments, d_out)

    return forward_and_backward if cell.backward else forward


def _scan(cell: Cell) -> Callable[..., Any]:
    """What computes the cell, given its arguments."""
    if cell.backend == GPU_PEER:
        theirs = importlib.import_module(PEERS[GPU_PEER]).selective_scan_fn
        return functools.partial(theirs, delta_softplus=cell.fused)
    if cell.backend in PEERS:
        block = importlib.import_module(PEERS[cell.backend]).MambaBlock
        return functools.partial(block.selective_scan, None)  # the method uses nothing of its object
    backend = "reference" if cell.backend == COMPILED else cell.backend
    options: dict[str, Any] = {"discretization": cell.discretization, "backend": backend, "delta_softplus": cell.fused}
    if cell.level:
        return functools.partial(_scan_on, cell.level, **options)
    scan: Callable[..., Any] = functools.partial(selective_scan, **options)
    return torch.compile(scan, fullgraph=True, dynamic=False) if cell.backend == COMPILED else scan


def _scan_on(level: str, *arguments: Any, **options: Any) -> Any:
    native.set_cpu_level(level)
    return selective_scan(*arguments, **options)


def missing(backend: str) -> str | None:
    """Why nothing of this backend can be measured here and how to get it, or None."""
    if backend not in PEERS:
        return BACKENDS["reference" if backend == COMPILED else backend].missing()
    try:
        importlib.import_module(PEERS[backend])
    except ImportError as error:
        name = PEERS[backend].partition(".")[0]
        return f"{name}, the peer, is not installed ({error}); get it with 'pip install {name.replace('_', '-')}'"
    return None


def needed_bytes(cell: Cell) -> int:
    """Roughly the memory that one call needs, inputs and outputs included; the factors were measured."""
    element: int = getattr(torch, cell.dtype).itemsize
    wide = max(element, 4)
    inputs = 10 * cell.batch * cell.L * D * element
    if cell.backend in (PEER, PEER_KEEPING):
        padded = 1 << (cell.L - 1).bit_length()  # its scan wants a power of two
        return inputs + (10 if cell.backward else 6) * cell.batch * padded * D * N * wide
    if cell.backend in ("reference", COMPILED) and cell.backward:
        return inputs + 30 * cell.updates * wide  # the tape of autograd
    return inputs + 4 * cell.batch * D * N * wide


def too_large(needed: float, device: str, usable: float) -> str | None:
    """Why a call that needs so many bytes should not be tried, if no more than a share of the free memory is usable."""
    available = available_bytes(device)
    if needed <= usable * available:
        return None
    free = f"{available / 1e9:.2g} GB that are free"
    return f"it would need about {needed / 1e9:.2g} GB of memory, more than {usable:.0%} of the {free}"


def available_bytes(device: str) -> int:
    """Memory that could be had now; where the system does not tell, all that there is."""
    if device != "cpu":
        free: int = torch.get_device_module(device).mem_get_info()[0]
        return free
    if (meminfo := Path("/proc/meminfo")).exists() and "MemAvailable:" in (told := meminfo.read_text()):
        return int(told.split("MemAvailable:")[1].split()[0]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
