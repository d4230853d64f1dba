"""What is timed: one scan on realistic inputs, by each backend and by the peer, with the same work for all.

On the CPU the peer is mambapy's selective scan, called and not copied: e^{ΔA} and ΔBx as (batch, L, D, N) tensors, its
parallel scan over them, the product with C and the skip D·x. It knows neither softplus nor gate, so ours does without
them too where the two are compared. On a GPU the peer is mamba_ssm's `selective_scan_fn`, which has both.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
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
PEERS = (PEER, PEER_KEEPING, GPU_PEER)
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


@dataclass(frozen=True)
class Inputs:
    """The tensors of one shape, as `selective_scan` wants them: (batch, D, L) and (batch, N, L)."""

    u: Tensor
    delta: Tensor
    A: Tensor
    B: Tensor
    C: Tensor
    D: Tensor
    z: Tensor
    bias: Tensor
    raw_delta: Tensor
    """What bias and softplus turn into `delta`."""
    d_out: Tensor


@functools.cache
def make_inputs(batch: int, L: int, dtype: str, layout: str, device: str = "cpu") -> Inputs:
    """The same numbers every time: steps from 0.001 to 0.1 and A from −1 to −N, as Mamba is initialised."""
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
    return Inputs(
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
    if cell.backend in PEERS:
        scan, arguments, d_out = _gpu_peer_scan(cell) if cell.backend == GPU_PEER else _peer_scan(cell)
    else:
        scan, arguments, d_out = _own_scan(cell)

    def forward() -> object:
        with torch.no_grad():
            return scan(*arguments)

    def forward_and_backward() -> object:
        return torch.autograd.grad(scan(*arguments), arguments, d_out)

    return forward_and_backward if cell.backward else forward


def _own_scan(cell: Cell) -> tuple[Callable[..., Tensor], tuple[Tensor, ...], Tensor]:
    inputs = make_inputs(cell.batch, cell.L, cell.dtype, cell.layout, cell.device)
    backend = "reference" if cell.backend == COMPILED else cell.backend
    options: dict[str, Any] = {"discretization": cell.discretization, "backend": backend, "delta_softplus": cell.fused}
    scan: Callable[..., Any] = functools.partial(_scan_on if cell.level else selective_scan, **options)
    if cell.level:
        scan = functools.partial(scan, cell.level)
    if cell.backend == COMPILED:
        scan = torch.compile(scan, fullgraph=True, dynamic=False)
    return scan, _arguments(cell, inputs), inputs.d_out


def _scan_on(level: str, *arguments: Any, **options: Any) -> Any:
    native.set_cpu_level(level)
    return selective_scan(*arguments, **options)


def _arguments(cell: Cell, inputs: Inputs) -> tuple[Tensor, ...]:
    """The positional arguments, the same for `selective_scan` and `selective_scan_fn`."""
    delta, extra = (inputs.raw_delta, (inputs.z, inputs.bias)) if cell.fused else (inputs.delta, ())
    return inputs.u, delta, inputs.A, inputs.B, inputs.C, inputs.D, *extra


def _gpu_peer_scan(cell: Cell) -> tuple[Callable[..., Tensor], tuple[Tensor, ...], Tensor]:
    from mamba_ssm.ops.selective_scan_interface import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
        selective_scan_fn,
    )

    inputs = make_inputs(cell.batch, cell.L, cell.dtype, cell.layout, cell.device)
    return functools.partial(selective_scan_fn, delta_softplus=cell.fused), _arguments(cell, inputs), inputs.d_out


def _peer_scan(cell: Cell) -> tuple[Callable[..., Tensor], tuple[Tensor, ...], Tensor]:
    from mambapy.mamba import MambaBlock  # type: ignore[import-not-found, import-untyped, unused-ignore]

    inputs = make_inputs(cell.batch, cell.L, cell.dtype, cell.layout)
    dense = (inputs.u, inputs.delta, inputs.B, inputs.C)
    u, delta, B, C = (t.detach().transpose(1, 2).requires_grad_() for t in dense)  # (batch, L, …), its own layout
    scan = functools.partial(MambaBlock.selective_scan, None)  # the method uses nothing of its object
    return scan, (u, delta, inputs.A, B, C, inputs.D), inputs.d_out.transpose(1, 2)


def missing(backend: str) -> str | None:
    """Why nothing of this backend can be measured here and how to get it, or None."""
    if backend in (PEER, PEER_KEEPING):
        try:
            import mambapy.mamba  # type: ignore[import-not-found, import-untyped, unused-ignore] # noqa: F401
        except ImportError as error:
            return f"mambapy, the peer, is not installed ({error}); get it with 'pip install mambapy'"
        return None
    if backend == GPU_PEER:
        try:
            import mamba_ssm.ops.selective_scan_interface  # type: ignore[import-not-found, import-untyped, unused-ignore] # noqa: F401
        except ImportError as error:
            return f"mamba_ssm, the peer, is not installed ({error}); get it with 'pip install mamba-ssm'"
        return None
    return BACKENDS["reference" if backend == COMPILED else backend].missing()


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


def available_bytes(device: str) -> int:
    """Memory that could be had now; where the system does not tell, all that there is."""
    if device != "cpu":
        free: int = torch.get_device_module(device).mem_get_info()[0]
        return free
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
