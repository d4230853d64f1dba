"""Which backends there are, why one is missing, and the choice between them."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ...discretize import BUILT_IN
from ...discretize.base import Discretization
from ...support.names import unknown
from .. import native
from ..accelerator import GPUS, interpreted, triton_missing, triton_refuses
from ..compiling import assume_constant_result
from . import op, reference
from .native import refuses


@dataclass(frozen=True)
class Backend:
    """One way to compute the scan."""

    name: str
    description: str
    scan: Callable[..., tuple[Tensor, Tensor]]
    missing: Callable[[], str | None]
    """Why it cannot be used on this machine and how to get it, or None if it can."""
    refuses: Callable[[torch.device, Discretization], str | None]
    """Why it cannot run this rule on this device, or None if it can."""
    double: bool = True
    """Whether it computes in float64 where an argument is that."""

    def cannot(self, device: torch.device, discretization: Discretization, dtype: torch.dtype) -> str | None:
        """Why it is no choice for this call, or None if it is."""
        too_wide = dtype == torch.float64 and not self.double
        return self.missing() or self.refuses(device, discretization) or ("it has no float64" if too_wide else None)


def _triton_refuses(device: torch.device, discretization: Discretization) -> str | None:
    if reason := triton_refuses(device):
        return reason
    if discretization not in BUILT_IN:
        names = ", ".join(rule.name for rule in BUILT_IN)
        return f"discretization {discretization.name!r} is not one of those compiled into it ({names})"
    return None


BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend(
            name="native",
            description="fused C++ for the CPU; every built-in discretization",
            scan=op.scan,
            missing=native.missing,
            refuses=refuses,
        ),
        Backend(
            name="triton",
            description="fused Triton kernels for GPUs; every built-in discretization, in float32",
            scan=op.scan,
            missing=triton_missing,
            refuses=_triton_refuses,
            double=False,
        ),
        Backend(
            name="reference",
            description="plain PyTorch, sequential; any device, dtype and discretization",
            scan=reference.scan,
            missing=lambda: None,
            refuses=lambda device, discretization: None,
        ),
    )
}


@assume_constant_result
def choose(name: str, device: torch.device, discretization: Discretization, dtype: torch.dtype = torch.float32) -> str:
    """The name of the backend to use; "auto" takes the fused one of the device, and warns once where that cannot."""
    if not isinstance(name, str) or name not in ("auto", *BACKENDS):
        raise ValueError(unknown("backend", name, ["auto", *BACKENDS]))
    return _chosen(name, device, discretization, dtype)


@functools.cache
def _chosen(name: str, device: torch.device, discretization: Discretization, dtype: torch.dtype) -> str:
    """Cached: asking takes time, and the warning should come once for each kind of call."""
    fused = "triton" if device.type in GPUS or interpreted() else "native"
    wanted = fused if name == "auto" else name
    reason = BACKENDS[wanted].cannot(device, discretization, dtype)
    if reason is None:
        return wanted
    if name != "auto":
        raise RuntimeError(f"backend {name!r} cannot be used: {reason}")
    why = f"because the {fused} one cannot: {reason}"
    warnings.warn(f"selective_scan runs on the slow reference backend, {why}", stacklevel=4)
    return "reference"
