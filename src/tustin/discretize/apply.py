"""The discrete matrices themselves, for users who want Ā and B̄ rather than a scan."""

import torch
from torch import Tensor

from .base import Discretization, get_discretization


def discretize(
    A: Tensor, B: Tensor, delta: Tensor | float, discretization: str | Discretization = "mamba"
) -> tuple[Tensor, ...]:
    """(Ā, B̄) of h' = Ah + Bu with diagonal A: the recurrence is h_k = Ā_k·h_{k−1} + B̄_k·u_k.

    Two forms, told apart by the step:

    - `delta` a number or a tensor of steps that broadcasts against A, B elementwise (all of them do);
    - `delta` (batch, D, L) and A (D, N) as in `selective_scan`, with B constant (D, N), per token (batch, N, L) or
      grouped (batch, G, N, L); Ā and B̄ are (batch, D, L, N). That is large: `selective_scan` never forms them.

    A rule that weighs p input samples returns p matrices after Ā, newest first:
    h_k = Ā_k·h_{k−1} + Σ_j B̄_{j,k}·u_{k−j}.
    """
    rule = get_discretization(discretization)
    delta = torch.as_tensor(delta, dtype=A.dtype, device=A.device)
    per_token = delta.ndim == 3 and A.ndim == 2
    if per_token:
        B = input_matrix_per_token(B, *delta.shape)  # (batch, D, L, N)
        A, delta = A[:, None], delta.unsqueeze(-1)  # (D, 1, N) and (batch, D, L, 1)
    alpha, betas = rule(*torch.broadcast_tensors(delta, delta * A))
    return alpha, *(beta * (_delayed(B, j) if per_token else B) for j, beta in enumerate(betas))


def input_matrix_per_token(B: Tensor, batch: int, D: int, L: int) -> Tensor:
    """B (or C) in any of its three forms as a view (batch, D, L, N), materialised only where it is grouped."""
    if B.ndim == 2:  # (D, N)
        return B[None, :, None, :].expand(batch, D, L, -1)
    if B.ndim == 3:  # (batch, N, L)
        return B.transpose(1, 2)[:, None].expand(batch, D, L, -1)
    groups = B.shape[1]  # (batch, G, N, L)
    return B.transpose(2, 3).repeat_interleave(D // groups, dim=1)


def _delayed(B: Tensor, j: int) -> Tensor:
    """B (batch, D, L, N) of the token j earlier: the weight of u_{k−j} is β_j(Δ_k, z_k)·B_{k−j}."""
    return torch.nn.functional.pad(B, (0, 0, j, 0))[:, :, : B.shape[2]]
