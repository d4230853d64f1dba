"""The short causal convolution, of a sequence and of its next tokens."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from tustin.ops.conv import causal_conv
from tustin.ops.update import causal_conv_update

__all__ = ["causal_conv1d_fn", "causal_conv1d_update"]


def causal_conv1d_fn(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    seq_idx: Tensor | str | None = None,
    initial_states: Tensor | None = None,
    return_final_states: bool = False,
    final_states_out: Tensor | None = None,
    activation: str | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """`tustin.ops.causal_conv`, with samples from before the sequence, and the newest ones for what comes after it.

    Args:
        x: (batch, D, L).
        weight: (D, K).
        bias: (D,).
        seq_idx: Not supported. Until version 1.1 the fourth argument was the activation, and as that it is taken.
        initial_states: The K−1 samples before the first, (batch, D, K−1).
        return_final_states: Also return the K−1 newest samples.
        final_states_out: Where to write them.
        activation: None, "silu" or "swish", which are the same.
    """
    if isinstance(seq_idx, str):
        seq_idx, activation = None, seq_idx
    if seq_idx is not None:
        raise NotImplementedError("causal_conv1d_fn: seq_idx is not supported by tustin.compat")
    silu = _silu("causal_conv1d_fn", activation)
    samples = x if initial_states is None else torch.cat([initial_states.to(x.dtype), x], dim=-1)
    out = causal_conv(samples, weight, bias, silu=silu)[..., samples.shape[-1] - x.shape[-1] :]
    if not return_final_states:
        return out
    final_states = F.pad(samples, (weight.shape[1] - 1 - samples.shape[-1], 0))  # cuts, where there are more
    if final_states_out is None:
        return out, final_states
    final_states_out.copy_(final_states)
    return out, final_states_out


def causal_conv1d_update(
    x: Tensor,
    conv_state: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    cache_seqlens: Tensor | None = None,
    conv_state_indices: Tensor | None = None,
) -> Tensor:
    """The next tokens of a sequence; `conv_state` holds the newest samples and is updated in place.

    Args:
        x: (batch, D) or (batch, D, L).
        conv_state: (batch, D, S) with S of at least K−1.
        weight: (D, K).
        bias: (D,).
        activation: None, "silu" or "swish", which are the same.
        cache_seqlens: How many samples came before, (batch,): the state is then a ring with the next at that, modulo S.
        conv_state_indices: Which rows of a larger state belong to the batch, (batch,).
    """
    silu = _silu("causal_conv1d_update", activation)
    if conv_state_indices is not None:
        rows = conv_state[conv_state_indices]
        out = causal_conv1d_update(x, rows, weight, bias, activation, cache_seqlens)
        conv_state[conv_state_indices] = rows
        return out
    if cache_seqlens is None:
        return causal_conv_update(x, conv_state, weight, bias, silu=silu)
    tokens = x.unsqueeze(-1) if x.ndim == 2 else x
    newest = conv_state.gather(2, _ring(conv_state, cache_seqlens, 1 - weight.shape[1], 0))
    out = causal_conv_update(x, newest, weight, bias, silu=silu)
    conv_state.scatter_(2, _ring(conv_state, cache_seqlens, 0, tokens.shape[2]), tokens.to(conv_state.dtype))
    return out


def _ring(state: Tensor, next_place: Tensor, start: int, end: int) -> Tensor:
    """The places [start, end) after the next one, (batch, D, end − start)."""
    places = next_place.long()[:, None] + torch.arange(start, end, device=state.device)
    return places.remainder(state.shape[2])[:, None].expand(-1, state.shape[1], -1)


def _silu(function: str, activation: str | None) -> bool:
    if activation not in (None, "silu", "swish"):
        raise NotImplementedError(f"{function}: activation must be None, 'silu' or 'swish', got {activation!r}")
    return activation is not None
