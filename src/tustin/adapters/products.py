"""The linear layers of an adapted mixer on AMD's CPUs: by oneDNN, where PyTorch would take MKL.

MKL multiplies float32 matrices at half the speed of such a CPU with AVX-512, or less. PyTorch contains oneDNN as well,
which uses all of it, but takes it for float32 only when it compiles a model.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..ops.operators import needs_gradient_of


def with_fast_products(forward: Callable[..., Any]) -> Callable[..., Any]:
    """The forward pass with its linear layers by oneDNN, where that is faster and nobody wants gradients."""

    @functools.wraps(forward)
    def faster(self: Any, hidden_states: Tensor, *arguments: Any, **more: Any) -> Any:
        if _can(hidden_states):
            with _ByOneDNN():
                return forward(self, hidden_states, *arguments, **more)
        return forward(self, hidden_states, *arguments, **more)

    return faster


def _can(hidden: Tensor) -> bool:
    """Whether it is more than one token, and nobody traces, wants gradients or counts PyTorch's own operators."""
    if torch.compiler.is_compiling() or torch._C._is_tracing() or torch.is_grad_enabled():
        return False
    if torch._C._len_torch_dispatch_stack() > 0:
        return False
    return hidden.shape[1] > 1 and not torch.is_autocast_enabled("cpu") and onednn_is_faster()


class _ByOneDNN(TorchFunctionMode):
    """`F.linear` of plain float32 tensors on the CPU by oneDNN, while it lasts; everything else as ever."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is F.linear and not kwargs and len(args) in (2, 3):
            x, weight, bias = (*args, None)[:3]
            if are_plain(x, weight, bias):
                return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return func(*args, **(kwargs or {}))


def are_plain(*tensors: Tensor | None) -> bool:
    """Whether all that are given are float32 on the CPU, and their memory holds their values."""
    plain = all(t is None or (t.dtype is torch.float32 and t.is_cpu) for t in tensors)
    return plain and needs_gradient_of(tensors) is not None


@functools.cache
def onednn_is_faster() -> bool:
    """On CPUs of AMD with AVX-512, where PyTorch holds both libraries; on Intel's both are as fast."""
    if not (torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):
        return False
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    cpuinfo = Path("/proc/cpuinfo")
    return cpuinfo.exists() and "AuthenticAMD" in cpuinfo.read_text()
