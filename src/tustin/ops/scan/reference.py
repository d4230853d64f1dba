"""The definition of the selective scan, in plain PyTorch: sequential, any device, any dtype, any rule.

    Δ_k = softplus(delta_k + delta_bias)        v_k = B_k u_k
    h_k = α(Δ_k A)·h_{k−1} + Σ_j β_j(Δ_k, Δ_k A)·v_{k−j}        (a rule may also look at Δ_{k−1} or at a λ_k)
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

    The state is h (batch, D, N); a rule of p > 1 samples also carries the p−1 newest v: (batch, D, N, p), and one that
    looks at earlier steps those, after them. The rule comes as itself, because a user's own need not be registered.
    """
    out_dtype = tensors.u.dtype
    u, delta, A, B, C = (tensor.to(dtype) for tensor in tensors[:5])
    D, z, delta_bias, initial_state, mix = (tensor if tensor is None else tensor.to(dtype) for tensor in tensors[5:])
    batch, channels, L = u.shape
    if delta_bias is not None:
        delta = delta + delta_bias[:, None]
    if options.delta_softplus:
        delta = F.softplus(delta)
    B = input_matrix_per_token(B, batch, channels, L)
    C = input_matrix_per_token(C, batch, channels, L)

    h, past, earlier = _split_state(initial_state, u.new_zeros(batch, channels, A.shape[1]), discretization)
    y = []
    for k in reversed(range(L)) if options.reverse else range(L):
        step = delta[:, :, k, None]  # (batch, D, 1)
        inputs = [B[:, :, k] * u[:, :, k, None], *past]  # (batch, D, N) each
        steps = (step.expand_as(h), *earlier)
        mixed = None if mix is None else mix[:, :, k, None]
        alpha, betas = discretization(steps[0], step * A, earlier=steps[1:], mix=mixed)
        h = alpha * h + sum(beta * v for beta, v in zip(betas, inputs, strict=True))
        past, earlier = inputs[:-1], steps[:-1]
        y.append((C[:, :, k] * h).sum(-1))

    out = torch.stack(y[::-1] if options.reverse else y, dim=-1)  # (batch, D, L)
    if D is not None:
        out = out + D[:, None] * u
    if z is not None:
        out = out * F.silu(z)
    return out.to(out_dtype), torch.stack([h, *past, *earlier], dim=-1) if past or earlier else h


def _split_state(
    state: Tensor | None, zero: Tensor, rule: Discretization
) -> tuple[Tensor, list[Tensor], tuple[Tensor, ...]]:
    """h, the inputs v_{k−1}, v_{k−2}, … and the steps Δ_{k−1}, … that a rule looks back on."""
    if state is None:
        parts: tuple[Tensor, ...] = (zero,) * rule.state_parts
    else:
        parts = state.unbind(-1) if rule.state_parts > 1 else (state,)
    return parts[0], list(parts[1 : rule.taps]), tuple(parts[rule.taps :])
