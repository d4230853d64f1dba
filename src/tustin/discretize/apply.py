"""The discrete matrices themselves, for users who want Ā and B̄ rather than a scan."""

import torch
from torch import Tensor

from .base import Discretization, get_discretization


def discretize(
    A: Tensor,
    B: Tensor,
    delta: Tensor | float,
    discretization: str | Discretization = "mamba",
    *,
    mix: Tensor | float | None = None,
) -> tuple[Tensor, ...]:
    """Return Ā and B̄ for h' = Ah + Bu with diagonal A: the recurrence is h_k = Ā_k·h_{k−1} + B̄_k·u_k.

    There are two forms. The shape of the step selects one:

    - `delta` is a number or a tensor of steps; `delta`, A and B broadcast against each other;
    - `delta` (batch, D, L) and A (D, N) as in `selective_scan`, with B constant (D, N), per token (batch, N, L) or
      grouped (batch, G, N, L); Ā and B̄ are (batch, D, L, N). They are large; `selective_scan` never computes them.

    A rule that weighs p input samples returns p matrices after Ā, newest first:
    h_k = Ā_k·h_{k−1} + Σ_j B̄_{j,k}·u_{k−j}. If the weights depend on the previous step, the first form assumes that it
    has the same length, and the second form finds it in `delta`. `mix` is the λ of a rule that has one: a number, or a
    tensor like `delta`; ½ if not given.
    """
    rule = get_discretization(discretization)
    check_mix("discretize", rule, mix)
    delta = torch.as_tensor(delta, dtype=A.dtype, device=A.device)
    per_token = delta.ndim == 3 and A.ndim == 2
    if per_token:
        B = input_matrix_per_token(B, *delta.shape)  # (batch, D, L, N)
        A, delta = A[:, None], delta.unsqueeze(-1)  # (D, 1, N) and (batch, D, L, 1)
        if isinstance(mix, Tensor) and mix.ndim == 3:
            mix = mix.unsqueeze(-1)
    earlier = tuple(_delayed(delta, j + 1) for j in range(rule.steps - 1)) if per_token else ()
    alpha, betas = rule(*torch.broadcast_tensors(delta, delta * A), earlier=earlier, mix=mix)
    return alpha, *(beta * (_delayed(B, j) if per_token else B) for j, beta in enumerate(betas))


def check_mix(function: str, rule: Discretization, mix: Tensor | float | None) -> None:
    """Raise if a λ is given to a rule that has none, or is a number outside of [0, 1]."""
    if mix is None:
        return
    if not rule.mixes:
        raise ValueError(f"{function}: mix is given, but discretization {rule.name!r} has no λ")
    if isinstance(mix, Tensor):
        return
    if isinstance(mix, bool) or not isinstance(mix, int | float):
        raise TypeError(f"{function}: mix must be a tensor or a number, got {type(mix).__name__}")
    if not 0 <= mix <= 1:
        raise ValueError(f"{function}: mix must be between 0 and 1, got {mix}")


def input_matrix_per_token(B: Tensor, batch: int, D: int, L: int) -> Tensor:
    """B (or C) in any of its three forms as a view (batch, D, L, N), materialised only where it is grouped."""
    if B.ndim == 2:  # (D, N)
        return B[None, :, None, :].expand(batch, D, L, -1)
    if B.ndim == 3:  # (batch, N, L)
        return B.transpose(1, 2)[:, None].expand(batch, D, L, -1)
    groups = B.shape[1]  # (batch, G, N, L)
    return B.transpose(2, 3).repeat_interleave(D // groups, dim=1)


def _delayed(B: Tensor, j: int) -> Tensor:
    """B (batch, D, L, N) of the token j earlier, 0 before the first: the weight of u_{k−j} is β_j(Δ_k, z_k)·B_{k−j}."""
    return torch.nn.functional.pad(B, (0, 0, j, 0))[:, :, : B.shape[2]]
