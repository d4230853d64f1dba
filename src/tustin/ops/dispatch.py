"""Which backend computes a call of an operator: by name or by device, and why one cannot."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

import torch

from ..support.devices import GPUS
from ..support.names import unknown
from . import native
from .accelerator import interpreted, triton_missing, triton_refuses

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Backend:
    """One way to compute an operator."""

    name: str
    description: str
    missing: Callable[[], str | None]
    """Why it cannot be used on this machine and how to get it, or None if it can."""
    refuses: Callable[..., str | None]
    """Why it cannot run on this device, with whatever else the operator says of the call; None if it can."""


NATIVE = Backend("native", "fused C++ for the CPU", native.missing, native.refuses)
TRITON = Backend("triton", "fused Triton kernels for GPUs", triton_missing, triton_refuses)
REFERENCE = Backend("reference", "plain PyTorch; any device and dtype", lambda: None, lambda *call: None)


class _Operator(NamedTuple):
    backends: dict[str, Backend]
    warns: Callable[[torch.device], bool]


_OPERATORS: dict[str, _Operator] = {}


def declare(operator: str, *backends: Backend, warns: Callable[[torch.device], bool]) -> dict[str, Backend]:
    """Say which backends an operator has, and on which devices "auto" warns that it takes the reference."""
    _OPERATORS[operator] = _Operator({backend.name: backend for backend in backends}, warns)
    return _OPERATORS[operator].backends


def fused(device: torch.device) -> str:
    """The name of the backend with the fused code for a device."""
    return TRITON.name if device.type in GPUS or interpreted() else NATIVE.name


@functools.cache
def kernels(package: str, device: torch.device) -> Any:
    """The module with an operator's fused code for a device: Triton is imported only where it runs."""
    return import_module(f".{fused(device)}", package)


def _assume_constant_result(function: Function) -> Function:
    """As `torch.compiler.assume_constant_result`, but calling that imports the compiler, which takes two seconds."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


@_assume_constant_result
def choose(operator: str, name: str, device: torch.device, *call: Hashable) -> str:
    """The name of the backend to use; "auto" takes the fused one of the device, and warns once where that cannot.

    `call` is what else the choice depends on: for the scan the discretization, and the dtype if it is not float32.
    """
    try:
        return _chosen(operator, name, device, *call)
    except TypeError:
        if isinstance(name, str):
            raise
        raise ValueError(unknown("backend", name, ["auto", *_OPERATORS[operator].backends])) from None


@functools.cache
def _chosen(operator: str, name: str, device: torch.device, *call: Hashable) -> str:
    """Cached: asking takes time, and the warning should come once for each kind of call."""
    backends, warns = _OPERATORS[operator]
    if name not in ("auto", *backends):
        raise ValueError(unknown("backend", name, ["auto", *backends]))
    wanted = fused(device) if name == "auto" else name
    reason = backends[wanted].refuses(device, *call) if wanted in backends else f"{operator} has none"
    if reason is None:
        return wanted
    if name != "auto":
        raise RuntimeError(f"backend {name!r} cannot be used: {reason}")
    if warns(device):
        why = f"because the {wanted} backend cannot run it: {reason}"
        warnings.warn(f"{operator} runs on the slow reference backend, {why}", stacklevel=4)
    return REFERENCE.name
