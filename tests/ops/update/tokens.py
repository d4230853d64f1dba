"""Sequences taken token by token: what the updates make of them, and what the operators of whole sequences do."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.native import Arguments
from tests.systems import system
from tustin import causal_conv_update, selective_state_update

PER_TOKEN = ("u", "delta", "z", "B", "C", "mix")


def sequence(discretization: str = "mamba", dtype: torch.dtype = torch.float32, **sizes: object) -> Arguments:
    """Arguments of `selective_scan` with everything that is optional."""
    optional = ("D", "z", "delta_bias", "initial_state", "mix")
    return system(optional=optional, discretization=discretization, dtype=dtype, **sizes)  # type: ignore[arg-type]


def token(x: Arguments, k: int) -> Arguments:
    """The arguments of `selective_state_update` for token k, but the state."""
    return {n: t[..., k] if n in PER_TOKEN else t for n, t in x.items() if n != "initial_state"}


def updates(x: Arguments, state: Tensor, **how: object) -> Tensor:
    """The output of all tokens, one after the other."""
    L = x["u"].shape[-1]
    return torch.stack([selective_state_update(state, **token(x, k), **how) for k in range(L)], -1)  # type: ignore[arg-type]


def conv_updates(x: Tensor, state: Tensor, *parameters: Tensor, tokens: int = 1, **how: object) -> Tensor:
    """The output of all tokens, so many at once."""
    return torch.cat([causal_conv_update(part, state, *parameters, **how) for part in x.split(tokens, -1)], -1)  # type: ignore[arg-type]
