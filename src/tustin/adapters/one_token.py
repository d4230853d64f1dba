"""Decoding with `MambaMixer` on a CPU: its forward pass of one token, with our kernels and little around them.

A token takes microseconds, and so does each check and view. What this pass cannot take, it leaves to the other one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..discretize import Discretization
from ..ops.dispatch import choose
from ..ops.operators import observed
from ..ops.products import are_plain, has_hooks
from ..ops.update import native

_CPU = torch.device("cpu")
_FEW = 4
"""Rows of a batch that our linear layer is faster for: it reads the weights as fast as the memory can."""


def with_one_token(forward: Callable[..., Any], rule: Discretization) -> Callable[..., Any]:
    """The forward pass of a `MambaMixer` that takes the short way where it can."""

    @functools.wraps(forward)
    def shorter(
        self: Any, hidden_states: Tensor, cache_params: Any = None, attention_mask: Tensor | None = None, **more: Any
    ) -> Any:
        if cache_params is not None and attention_mask is None and _can(self, hidden_states, rule):
            states = _states(self, cache_params, len(hidden_states), rule)
            if states is not None:
                return _one_token(self, hidden_states, *states, rule.name)
        return forward(self, hidden_states, cache_params, attention_mask, **more)

    return shorter


def _can(mixer: Any, hidden: Tensor, rule: Discretization) -> bool:
    """Whether it is one token on a CPU, the weights are as they were made, and nobody looks or wants gradients."""
    if torch.compiler.is_compiling() or hidden.shape[1] != 1 or torch.is_grad_enabled() or observed():
        return False
    if torch.is_autocast_enabled("cpu"):
        return False
    conv, step = mixer.conv1d, mixer.dt_proj
    if type(conv) is not nn.Conv1d or type(step) is not nn.Linear or mixer.activation not in ("silu", "swish"):
        return False
    if "_hf_hook" in vars(conv) or "_hf_hook" in vars(step):  # accelerate may have moved their weights
        return False
    D, N = mixer.intermediate_size, mixer.ssm_state_size
    given = (conv.weight, step.weight, mixer.A_log, mixer.D, conv.bias, step.bias)
    shapes = ((D, 1, mixer.conv_kernel_size), (D, mixer.time_step_rank), (D, N), (D,), (D,), (D,))
    return (
        are_plain(hidden, *given)
        and all(tensor is None or tensor.shape == shape for tensor, shape in zip(given, shapes, strict=True))
        and choose("selective_state_update", "auto", _CPU, rule, torch.float32) == "native"
    )


def _states(mixer: Any, cache: Any, batch: int, rule: Discretization) -> tuple[Tensor, Tensor] | None:
    """Of the convolution and of the scan, if there are tokens before this one, and the kernels can overwrite them."""
    layer = mixer.layer_idx
    if cache.is_recording_past(layer):
        return None
    conv: Tensor | None = cache.get_conv_state(layer, state_idx=0)
    state: Tensor | None = cache.get_recurrent_state(layer, state_idx=0)
    if conv is None or state is None or not are_plain(conv, state):
        return None
    D, parts = mixer.intermediate_size, () if rule.state_parts == 1 else (rule.state_parts,)
    fits = state.shape == (batch, D, mixer.ssm_state_size, *parts)
    fits = fits and conv.shape[:2] == (batch, D) and conv.shape[2] >= mixer.conv_kernel_size - 1
    return (conv, state) if fits and 0 not in (*conv.stride(), *state.stride()) else None  # 0: expanded


def _one_token(mixer: Any, hidden: Tensor, conv_state: Tensor, state: Tensor, rule: str) -> Tensor:
    conv, step = mixer.conv1d, mixer.dt_proj
    N = mixer.ssm_state_size
    x, z = _linear(mixer.in_proj, hidden.squeeze(1)).split(mixer.intermediate_size, dim=1)  # (batch, D)
    x = native.update_conv(conv_state, x.unsqueeze(-1), conv.weight.squeeze(1), conv.bias, True).squeeze(-1)
    small, B, C = _linear(mixer.x_proj, x).split([mixer.time_step_rank, N, N], dim=1)
    delta = F.linear(small, step.weight)
    A = torch.exp(mixer.A_log).neg_()
    y = native.update_state(state, x, delta, A, B, C, mixer.D, z, step.bias, None, True, rule)
    torch._C._increment_version((conv_state, state))  # as torch.autograd.graph.increment_version
    return _linear(mixer.out_proj, y).unsqueeze(1)


def _linear(layer: Any, x: Tensor) -> Tensor:
    """A linear layer of few rows by our kernel. One that is not plain computes for itself."""
    if type(layer) is nn.Linear and len(x) <= _FEW and not has_hooks(layer):
        weight, bias = layer.weight, layer.bias
        if are_plain(weight, bias) and weight.is_contiguous() and weight.shape[1] == x.shape[1]:
            return native.linear(x, weight, bias)
    out: Tensor = layer(x)
    return out
