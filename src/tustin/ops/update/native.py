"""The native CPU backend: the scan of csrc/scan.h over one token, and what csrc/conv.h and csrc/linear.h do for it."""

from __future__ import annotations

from struct import Struct

import torch
from torch import Tensor

from .. import native
from ..checks import real_dtype
from ..scan import native as scan
from ..scan.arguments import Options, Tensors

_UPDATE = Struct(f"@3i5q{native.TENSOR * 5}")  # TustinConvUpdate
_LINEAR = Struct("@i3q4P")  # TustinLinear


def update_state(
    state: Tensor,
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    z: Tensor | None,
    delta_bias: Tensor | None,
    mix: Tensor | None,
    delta_softplus: bool,
    discretization: str,
) -> Tensor:
    """The output; the state is overwritten. One that the kernel cannot overwrite is copied, and copied back."""
    real = real_dtype(state, u, delta, A, B, C, D, z, delta_bias, mix)
    h = state.to(real)
    tensors = Tensors(
        u.unsqueeze(-1),
        delta.unsqueeze(-1),
        A.to(real),
        B.unsqueeze(-1),
        C.unsqueeze(-1),
        None if D is None else D.to(real),
        None if z is None else z.unsqueeze(-1),
        None if delta_bias is None else delta_bias.to(real),
        initial_state=h,
        mix=None if mix is None else mix.unsqueeze(-1),
    )
    out, last = scan.forward(tensors, Options(delta_softplus, discretization, reverse=False), None, in_place=True)
    if last.data_ptr() != state.data_ptr() or last.dtype != state.dtype:
        state.copy_(last)
    return out.squeeze(-1)


def update_conv(state: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, silu: bool) -> Tensor:
    """The output; the state is overwritten."""
    out = torch.empty_like(x)
    real = native.DTYPES[real_dtype(state, x, weight, bias)]
    numbers = [real, silu, native.threads(), *x.shape, weight.shape[1], state.shape[2]]
    for t in (state, x, weight, bias, out):
        numbers += native.fields(t)
    native.call("tustin_conv_update", _UPDATE.pack(*numbers), "causal_conv_update")
    return out


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x (rows, K), weight (N, K), bias (N,) → (rows, N), for a few rows; all float32, and the weights contiguous."""
    x, (N, K) = x.contiguous(), weight.shape
    out = x.new_empty(len(x), N)
    arguments = _LINEAR.pack(native.threads(), len(x), K, N, *native.addresses(x, weight, bias, out))
    native.call("tustin_linear", arguments, "linear")
    return out
