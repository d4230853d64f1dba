"""The short causal convolution of the next tokens, in place: its state is the newest samples."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...support.devices import GPUS
from ..checks import check_flags, check_overwritable, check_tensor, misshapen
from ..conv import reference
from ..dispatch import NATIVE, REFERENCE, TRITON, choose, declare, kernels
from ..operators import register_in_place

_OPERATOR = "causal_conv_update"
_PACKAGE = __name__.rpartition(".")[0]

declare(_OPERATOR, NATIVE, TRITON, REFERENCE, warns=lambda device: device.type in ("cpu", *GPUS))


def causal_conv_update(
    x: Tensor,
    state: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    silu: bool = True,
    backend: str = "auto",
) -> Tensor:
    """Convolve the next tokens of a sequence, and update `state`, which holds the newest samples.

        out_k = silu(bias + Σ_j weight_j · x_{k−K+1+j})        j = 0 … K−1, and samples of the state before the first
        state ← the newest S samples of state and x

    This is `causal_conv` of the sequence so far, with only the outputs of the new tokens. On the CPU both give the same
    bits if the state has the dtype of x.

    Args:
        x: The next token, (batch, D), or the next tokens, (batch, D, L).
        state: The newest samples, oldest first, (batch, D, S) with S of at least K−1; zeros before the first token. It
            is overwritten, so it must not share memory with the other arguments. Of any dtype and strides.
        weight: One filter per channel, (D, K); its last entry multiplies the current token.
        bias: Added before the SiLU, (D,).
        silu: Apply the SiLU.
        backend: "auto", "native" (CPU), "triton" (GPU) or "reference".

    Returns:
        The output, shaped as x and in its dtype. Inside, everything is float32, or float64 if an argument is.

    If a gradient is needed, and under the transforms of `torch.func`, the reference computes the result.
    """
    _check(x, state, weight, bias, silu)
    chosen = choose(_OPERATOR, backend, x.device)
    out: Tensor = (_definition if chosen == "reference" else _update)(state, x, weight, bias, silu)
    return out


def _definition(state: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, silu: bool) -> Tensor:
    """The convolution of the samples kept and the new ones, and of its outputs the new ones."""
    if x.ndim == 2:
        return _definition(state, x.unsqueeze(-1), weight, bias, silu).squeeze(-1)
    samples = torch.cat([state.to(torch.promote_types(state.dtype, x.dtype)), x], dim=-1)
    out = reference.conv(samples, weight, bias, silu, reverse=False)[..., -x.shape[2] :]
    state.copy_(samples[..., samples.shape[2] - state.shape[2] :])
    return out.to(x.dtype)


def _run(state: Tensor, x: Tensor, *arguments: Any) -> Tensor:
    tokens = x.unsqueeze(-1) if x.ndim == 2 else x
    out: Tensor = kernels(_PACKAGE, x.device).update_conv(state, tokens, *arguments)
    return out.squeeze(-1) if x.ndim == 2 else out


def _fake(state: Tensor, x: Tensor, *arguments: Any) -> Tensor:
    return torch.empty_like(x.unsqueeze(-1)).squeeze(-1) if x.ndim == 2 else torch.empty_like(x)  # as the kernels do


_update = register_in_place(
    _OPERATOR,
    "(Tensor(a!) state, Tensor x, Tensor weight, Tensor? bias, bool silu) -> Tensor",
    _run,
    _fake,
    _definition,
)


def _check(x: Tensor, state: Tensor, weight: Tensor, bias: Tensor | None, silu: bool) -> None:
    for name, tensor in (("x", x), ("state", state), ("weight", weight), ("bias", bias)):
        if tensor is None and name == "bias":
            continue
        device = check_tensor(_OPERATOR, name, tensor).device
        if device != x.device:
            raise ValueError(f"{_OPERATOR}: {name} is on {device}, but x is on {x.device}")
    check_flags(_OPERATOR, silu=silu)
    if x.ndim not in (2, 3) or (x.ndim == 3 and x.shape[2] == 0):
        raise misshapen(_OPERATOR, "x", x, "(batch, D), or (batch, D, L) with L of at least 1")
    batch, D = x.shape[:2]
    if weight.ndim != 2 or weight.shape[0] != D or weight.shape[1] == 0:
        raise misshapen(_OPERATOR, "weight", weight, f"(D, K) with D = {D}, as x has, and K of at least 1")
    past = weight.shape[1] - 1
    if state.ndim != 3 or state.shape[:2] != (batch, D) or state.shape[2] < past:
        raise misshapen(_OPERATOR, "state", state, f"({batch}, {D}, S) with S of at least K − 1 = {past}")
    if bias is not None and bias.shape != (D,):
        raise misshapen(_OPERATOR, "bias", bias, f"({D},)")
    check_overwritable(_OPERATOR, "state", state)
