"""Our operators under the names and signatures of the functions that the mixers of transformers call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ..discretize import Discretization
from ..ops import causal_conv, causal_conv_update, selective_scan, selective_state_update

NEEDED = ("causal_conv1d_fn", "causal_conv1d_update", "mamba_selective_scan", "mamba_selective_state_update")
"""What a mixer must call; `mamba_inner_fn` is called by some of them."""


def functions(rule: Discretization) -> dict[str, Callable[..., Any]]:
    """All of them by name, with the scan's rule."""

    def mamba_selective_scan(
        hidden_states: Tensor,
        dt: Tensor,
        A: Tensor,
        B: Tensor,
        C: Tensor,
        D: Tensor | None = None,
        z: Tensor | None = None,
        delta_bias: Tensor | None = None,
        delta_softplus: bool = False,
        return_last_state: bool = False,
        **ignored: Any,  # which of its own scans transformers should take
    ) -> Tensor | tuple[Tensor, Tensor]:
        parameters = (A, B, C, D, z, delta_bias, delta_softplus, return_last_state)
        return selective_scan(hidden_states, dt, *parameters, discretization=rule)

    def mamba_selective_state_update(
        state: Tensor,
        hidden_states: Tensor,
        dt: Tensor,
        A: Tensor,
        B: Tensor,
        C: Tensor,
        D: Tensor | None = None,
        dt_bias: Tensor | None = None,
        dt_softplus: bool = False,
        z: Tensor | None = None,
        **ignored: Any,
    ) -> Tensor:
        parameters = (A, B, C, D, z, dt_bias, dt_softplus)
        return selective_state_update(state, hidden_states, dt, *parameters, discretization=rule)

    return {
        "causal_conv1d_fn": causal_conv1d_fn,
        "causal_conv1d_update": causal_conv1d_update,
        "mamba_inner_fn": mamba_inner_fn,
        "mamba_selective_scan": mamba_selective_scan,
        "mamba_selective_state_update": mamba_selective_state_update,
    }


def causal_conv1d_fn(
    hidden_states: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    **more: Any,
) -> Tensor:
    if packed := [name for name in ("seq_idx", "cu_seqlens", "cu_seq_lens_q") if more.get(name) is not None]:
        raise ValueError(f"{packed[0]} was given, but adapted models do not support packed sequences; pad them instead")
    return _activated(causal_conv(hidden_states, weight, bias, silu=_is_silu(activation)), activation)


def causal_conv1d_update(
    hidden_states: Tensor,
    conv_state: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
) -> Tensor:
    out = causal_conv_update(hidden_states, conv_state, weight, bias, silu=_is_silu(activation))
    return _activated(out, activation)


def mamba_inner_fn(*arguments: Any, **more: Any) -> None:
    """The whole mixer at once. None sends it through the functions above, which are as fast."""


def _is_silu(activation: str | None) -> bool:
    return activation in ("silu", "swish")


def _activated(y: Tensor, activation: str | None) -> Tensor:
    """SiLU is a part of the convolution; anything else comes after it."""
    if activation is None or _is_silu(activation):
        return y
    from transformers.activations import ACT2FN

    out: Tensor = ACT2FN[activation](y)
    return out
