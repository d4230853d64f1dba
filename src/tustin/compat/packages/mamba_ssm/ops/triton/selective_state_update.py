"""The scan of one token, in place."""

from __future__ import annotations

from torch import Tensor

from tustin.compat.rule import rule
from tustin.ops import update

__all__ = ["selective_state_update"]


def selective_state_update(
    state: Tensor,
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
    state_batch_indices: Tensor | None = None,
) -> Tensor:
    """`tustin.selective_state_update` with the rule of `tustin.compat`.

    Args:
        state: (batch, D, N), or (batch, heads, D, N) where x has heads; updated in place.
        x: (batch, D) or (batch, heads, D).
        dt: As x.
        A: (D, N) or (heads, D, N).
        B: (batch, N) or (batch, G, N) with G dividing the heads.
        C: As B.
        D: (D,) or (heads, D).
        z: As x.
        dt_bias: As D.
        dt_softplus: Pass dt through softplus, after the bias.
        state_batch_indices: Which rows of a larger state belong to the batch, (batch,).

    Returns:
        The output, as x.
    """
    if state_batch_indices is not None:
        rows = state[state_batch_indices]
        out = selective_state_update(rows, x, dt, A, B, C, D, z, dt_bias, dt_softplus)
        state[state_batch_indices] = rows
        return out
    heads = x.ndim == 3
    channels = state
    if heads and rule().name != "mamba":
        raise ValueError(
            f"selective_state_update: a state with heads belongs to Mamba-2, which has only the rule 'mamba', "
            f"but the rule of tustin.compat is {rule().name!r}"
        )
    if heads:  # one after the other, which is how groups count, too
        channels, x, dt, A = state.flatten(1, 2), x.flatten(1), dt.flatten(1), A.flatten(0, 1)
        D, dt_bias = (None if t is None else t.flatten() for t in (D, dt_bias))
        z = None if z is None else z.flatten(1)
    out = update.selective_state_update(
        channels, x, dt, A, B, C, D, z, dt_bias, bool(dt_softplus), discretization=rule()
    )
    if heads and not state.is_contiguous():  # then the channels may be a copy
        state.copy_(channels.view(state.shape))
    return out.view(-1, *state.shape[1:3]) if heads else out
