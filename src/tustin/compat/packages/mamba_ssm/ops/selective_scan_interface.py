"""The scan, and the inside of a Mamba layer around it: convolution, projections, scan and gate."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from tustin.compat.rule import rule
from tustin.ops.conv import causal_conv
from tustin.ops.products import linear
from tustin.ops.rowwise import rms_norm
from tustin.ops.scan import selective_scan

__all__ = [
    "bimamba_inner_fn",
    "mamba_inner_fn",
    "mamba_inner_fn_no_out_proj",
    "scan_arguments",
    "selective_scan_fn",
    "selective_scan_ref",
]


def selective_scan_fn(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool | None = False,
    return_last_state: bool | None = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """`tustin.selective_scan` with the rule of `tustin.compat`."""
    flags = bool(delta_softplus), bool(return_last_state)  # callers pass None for no
    return selective_scan(u, delta, A, B, C, D, z, delta_bias, *flags, discretization=rule())


def selective_scan_ref(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool | None = False,
    return_last_state: bool | None = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """The same in plain PyTorch, one token after the other."""
    flags = bool(delta_softplus), bool(return_last_state)
    return selective_scan(u, delta, A, B, C, D, z, delta_bias, *flags, discretization=rule(), backend="reference")


def scan_arguments(
    x: Tensor,
    conv1d_weight: Tensor,
    conv1d_bias: Tensor | None,
    x_proj_weight: Tensor,
    delta_proj_weight: Tensor,
    A: Tensor,
    B: Tensor | None = None,
    C: Tensor | None = None,
    D: Tensor | None = None,
    delta_bias: Tensor | None = None,
    B_proj_bias: Tensor | None = None,
    C_proj_bias: Tensor | None = None,
    delta_softplus: bool = True,
    norms: tuple[Tensor | None, Tensor | None, Tensor | None] = (None, None, None),
    eps: float = 1e-6,
    reverse: bool = False,
) -> dict[str, Any]:
    """What a layer hands to `selective_scan`: x (batch, d_inner, L) convolved, and Δ, B and C projected from that.

    A `reverse` layer is the same as one that gets x flipped in time, and flips its result.
    """
    u = causal_conv(x, conv1d_weight.squeeze(1), conv1d_bias, reverse=reverse)
    rank, N = delta_proj_weight.shape[1], A.shape[-1]
    projected = linear(u.transpose(1, 2), x_proj_weight)  # (batch, L, rank + 2N)
    delta = linear(projected[..., :rank], delta_proj_weight)
    B_norm, C_norm, delta_norm = norms
    return {
        "u": u,
        "delta": _normed(delta, delta_norm, eps).transpose(1, 2),
        "A": A,
        "B": _per_token(projected[..., rank : rank + N], B_proj_bias, B_norm, eps) if B is None else B,
        "C": _per_token(projected[..., -N:], C_proj_bias, C_norm, eps) if C is None else C,
        "D": D,
        "delta_bias": delta_bias,
        "delta_softplus": bool(delta_softplus),
        "discretization": rule(),
        "reverse": reverse,
    }


def _per_token(matrix: Tensor, bias: Tensor | None, norm: Tensor | None, eps: float) -> Tensor:
    """B or C, (batch, L, N) → (batch, N, L)."""
    return _normed(matrix if bias is None else matrix + bias.to(matrix.dtype), norm, eps).transpose(1, 2)


def _normed(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    return x if weight is None else rms_norm(x, weight, eps).to(x.dtype)


def mamba_inner_fn(
    xz: Tensor,
    conv1d_weight: Tensor,
    conv1d_bias: Tensor | None,
    x_proj_weight: Tensor,
    delta_proj_weight: Tensor,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    A: Tensor,
    B: Tensor | None = None,
    C: Tensor | None = None,
    D: Tensor | None = None,
    delta_bias: Tensor | None = None,
    B_proj_bias: Tensor | None = None,
    C_proj_bias: Tensor | None = None,
    delta_softplus: bool = True,
    checkpoint_lvl: int = 1,
    b_rms_weight: Tensor | None = None,
    c_rms_weight: Tensor | None = None,
    dt_rms_weight: Tensor | None = None,
    b_c_dt_rms_eps: float = 1e-6,
) -> Tensor:
    """xz (batch, 2·d_inner, L) → (batch, L, d). `checkpoint_lvl` has no effect: memory is what autograd needs."""
    x, z = xz.chunk(2, dim=1)
    norms = b_rms_weight, c_rms_weight, dt_rms_weight
    projections = conv1d_weight, conv1d_bias, x_proj_weight, delta_proj_weight
    biases = delta_bias, B_proj_bias, C_proj_bias
    arguments = scan_arguments(x, *projections, A, B, C, D, *biases, delta_softplus, norms, b_c_dt_rms_eps)
    return linear(_output(arguments, z).transpose(1, 2), out_proj_weight, out_proj_bias)


def mamba_inner_fn_no_out_proj(
    xz: Tensor,
    conv1d_weight: Tensor,
    conv1d_bias: Tensor | None,
    x_proj_weight: Tensor,
    delta_proj_weight: Tensor,
    A: Tensor,
    B: Tensor | None = None,
    C: Tensor | None = None,
    D: Tensor | None = None,
    delta_bias: Tensor | None = None,
    B_proj_bias: Tensor | None = None,
    C_proj_bias: Tensor | None = None,
    delta_softplus: bool = True,
    checkpoint_lvl: int = 1,
) -> Tensor:
    """xz (batch, 2·d_inner, L) → (batch, d_inner, L), in Vision Mamba's fork."""
    x, z = xz.chunk(2, dim=1)
    projections = conv1d_weight, conv1d_bias, x_proj_weight, delta_proj_weight
    biases = delta_bias, B_proj_bias, C_proj_bias
    arguments = scan_arguments(x, *projections, A, B, C, D, *biases, delta_softplus)
    return _output(arguments, z)


def bimamba_inner_fn(
    xz: Tensor,
    conv1d_weight: Tensor,
    conv1d_bias: Tensor | None,
    x_proj_weight: Tensor,
    delta_proj_weight: Tensor,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    A: Tensor,
    A_b: Tensor,
    B: Tensor | None = None,
    C: Tensor | None = None,
    D: Tensor | None = None,
    delta_bias: Tensor | None = None,
    B_proj_bias: Tensor | None = None,
    C_proj_bias: Tensor | None = None,
    delta_softplus: bool = True,
    checkpoint_lvl: int = 1,
) -> Tensor:
    """xz (batch, 2·d_inner, L) → (batch, L, d): Vision Mamba's first way, two scans that share all but A."""
    x, z = xz.chunk(2, dim=1)
    projections = conv1d_weight, conv1d_bias, x_proj_weight, delta_proj_weight
    biases = delta_bias, B_proj_bias, C_proj_bias
    arguments = scan_arguments(x, *projections, A, B, C, D, *biases, delta_softplus)
    y = _output(arguments, z) + _output({**arguments, "A": A_b, "reverse": True}, z)
    return linear(y.transpose(1, 2), out_proj_weight, out_proj_bias)


def _output(arguments: dict[str, Any], z: Tensor) -> Tensor:
    y = selective_scan(**arguments, z=z)
    assert isinstance(y, Tensor)
    return y
