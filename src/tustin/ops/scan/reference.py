"""The definition of the selective scan, in plain PyTorch: sequential, any device, any dtype, any rule.

    Δ_k = softplus(delta_k + delta_bias)        v_k = B_k u_k
    h_k = α(Δ_k A)·h_{k−1} + Σ_j β_j(Δ_k, Δ_k A)·v_{k−j}
    y_k = Σ_n C_k h_k + D u_k                   out_k = y_k · silu(z_k)

Every other backend is judged against this one. Autograd supplies the gradients.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from ...discretize.apply import input_matrix_per_token
from ...discretize.base import Discretization
from .arguments import Options, Tensors


def scan(
    tensors: Tensors, options: Options, discretization: Discretization, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """The output (batch, D, L) in the dtype of u, and the last state in `dtype`, in which all is computed.

    The state is h (batch, D, N); a rule of p > 1 samples also carries the p−1 newest v: (batch, D, N, p). It comes as
    itself, because a rule of the user's own need not be registered under its name.
    """
    out_dtype = tensors.u.dtype
    u, delta, A, B, C = (tensor.to(dtype) for tensor in tensors[:5])
    D, z, delta_bias, initial_state = (tensor if tensor is None else tensor.to(dtype) for tensor in tensors[5:])
    batch, channels, L = u.shape
    if delta_bias is not None:
        delta = delta + delta_bias[:, None]
    if options.delta_softplus:
        delta = F.softplus(delta)
    B = input_matrix_per_token(B, batch, channels, L)
    C = input_matrix_per_token(C, batch, channels, L)

    h, past = _split_state(initial_state, u.new_zeros(batch, channels, A.shape[1]), discretization.taps)
    y = []
    for k in reversed(range(L)) if options.reverse else range(L):
        step = delta[:, :, k, None]  # (batch, D, 1)
        inputs = [B[:, :, k] * u[:, :, k, None], *past]  # (batch, D, N) each
        alpha, betas = discretization(step.expand_as(h), step * A)
        h = alpha * h + sum(beta * v for beta, v in zip(betas, inputs, strict=True))
        past = inputs[:-1]
        y.append((C[:, :, k] * h).sum(-1))

    out = torch.stack(y[::-1] if options.reverse else y, dim=-1)  # (batch, D, L)
    if D is not None:
        out = out + D[:, None] * u
    if z is not None:
        out = out * F.silu(z)
    return out.to(out_dtype), torch.stack([h, *past], dim=-1) if past else h


def _split_state(state: Tensor | None, zero: Tensor, taps: int) -> tuple[Tensor, list[Tensor]]:
    """h, and the inputs v_{k−1}, v_{k−2}, … that a rule of several taps looks back on."""
    if state is None:
        return zero, [zero] * (taps - 1)
    h, *past = [state] if taps == 1 else state.unbind(-1)
    return h, past
