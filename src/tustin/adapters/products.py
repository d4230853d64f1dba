"""The linear layers inside an adapted mixer's forward pass, by the faster library."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..ops.products import linear, may_be_faster


def with_fast_products(forward: Callable[..., Any]) -> Callable[..., Any]:
    """The forward pass with its linear layers by `linear`, for more than one token."""

    @functools.wraps(forward)
    def faster(self: Any, hidden_states: Tensor, *arguments: Any, **more: Any) -> Any:
        if may_be_faster() and hidden_states.shape[1] > 1:
            with _Faster():
                return forward(self, hidden_states, *arguments, **more)
        return forward(self, hidden_states, *arguments, **more)

    return faster


class _Faster(TorchFunctionMode):
    """`F.linear` by `linear` while it lasts; everything else as ever."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return (linear if func is F.linear else func)(*args, **(kwargs or {}))
