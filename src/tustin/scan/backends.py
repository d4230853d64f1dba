"""Which backends there are, why one is missing, and the choice between them."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .. import native
from ..compiling import assume_constant_result
from ..discretize.base import Method, unknown
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
    refuses: Callable[[torch.device, Method], str | None]
    """Why it cannot run this method on this device, or None if it can."""


BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend(
            name="native",
            description="fused C++ for the CPU; every built-in method",
            scan=op.scan,
            missing=native.missing,
            refuses=refuses,
        ),
        Backend(
            name="reference",
            description="plain PyTorch, sequential; any device, dtype and method",
            scan=reference.scan,
            missing=lambda: None,
            refuses=lambda device, method: None,
        ),
    )
}


@assume_constant_result
def choose(name: str, device: torch.device, method: Method) -> str:
    """The name of the backend to use; "auto" takes the first that can, and warns once where that is a slow one."""
    if name == "auto":
        return _best(device, method)
    if name not in BACKENDS:
        raise ValueError(unknown("backend", name, ["auto", *BACKENDS]))
    backend = BACKENDS[name]
    if reason := backend.missing() or backend.refuses(device, method):
        raise RuntimeError(f"backend {name!r} cannot be used: {reason}")
    return name


@functools.cache
def _best(device: torch.device, method: Method) -> str:
    """Cached, so that the warning comes once for each kind of call."""
    reasons = []
    for backend in BACKENDS.values():
        reason = backend.missing() or backend.refuses(device, method)
        if not reason:
            break
        reasons.append(f"the {backend.name} one cannot: {reason}")
    if reasons:
        why = "; ".join(reasons)
        warnings.warn(f"selective_scan runs on the slow {backend.name} backend, because {why}", stacklevel=4)
    return backend.name
