"""The scan with VMamba's signature: no gate, the bias seventh, four directions as four groups.

from tustin.compat.vmamba import selective_scan_fn
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..ops.scan import selective_scan
from .rule import rule

__all__ = ["selective_scan_fn"]

_BACKENDS = (None, "oflex", "core", "mamba", "torch")


def selective_scan_fn(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = True,
    oflex: bool = True,
    backend: str | None = None,
) -> Tensor:
    """`tustin.selective_scan` as VMamba's models call it, with the rule of `tustin.compat`.

    Args:
        u: Input, (batch, K·D, L), where K is the number of directions.
        delta: Step sizes, (batch, K·D, L).
        A: Diagonal of the state matrix, (K·D, N), real.
        B: Input matrix, (batch, K, N, L).
        C: Output matrix, (batch, K, N, L).
        D: Weight of the skip connection, (K·D,).
        delta_bias: Added to delta, (K·D,).
        delta_softplus: Pass delta through softplus, after the bias.
        oflex: Return float32 whatever the dtype of u, without a rounding in between.
        backend: One of VMamba's names, of which only "torch" matters: it takes our reference.

    Returns:
        The output, (batch, K·D, L).
    """
    if backend not in _BACKENDS:
        raise ValueError(
            f"selective_scan_fn: backend must be one of {', '.join(map(repr, _BACKENDS))}, got {backend!r}"
        )
    if oflex and isinstance(u, Tensor):
        u = u.to(torch.promote_types(u.dtype, torch.float32))
    y = selective_scan(
        u,
        delta,
        A,
        B,
        C,
        D,
        None,
        delta_bias,
        bool(delta_softplus),
        discretization=rule(),
        backend="reference" if backend == "torch" else "auto",
    )
    assert isinstance(y, Tensor)
    return y
