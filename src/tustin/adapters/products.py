"""The linear layers inside an adapted mixer's forward pass, by the faster library."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..ops.products import linear, onednn_is_faster


def with_fast_products(forward: Callable[..., Any]) -> Callable[..., Any]:
    """The forward pass with its linear layers by `linear`, where that can be faster and nobody wants gradients."""

    @functools.wraps(forward)
    def faster(self: Any, hidden_states: Tensor, *arguments: Any, **more: Any) -> Any:
        if _can(hidden_states):
            with _Faster():
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


class _Faster(TorchFunctionMode):
    """`F.linear` by `linear` while it lasts; everything else as ever."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return (linear if func is F.linear else func)(*args, **(kwargs or {}))
