"""What a Mamba layer computes, written down a second time: float64, one token after the other, no operator of ours."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def scan(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> tuple[Tensor, Tensor]:
    """h ← e^{ΔA} h + ΔB u and y = C·h + D u, for u, Δ (batch, d, L) and B, C (batch, N, L)."""
    h = u.new_zeros(*u.shape[:2], A.shape[1])
    y = []
    for k in range(u.shape[2]):
        step = delta[:, :, k, None]
        h = torch.exp(step * A) * h + step * B[:, None, :, k] * u[:, :, k, None]
        y.append((h * C[:, None, :, k]).sum(-1) + D * u[:, :, k])
    return torch.stack(y, -1), h


def projected(layer: nn.Module, x: Tensor, direction: str = "") -> list[Tensor]:
    """u, Δ, B and C of x (batch, d, L)."""
    conv, x_proj, dt_proj = (getattr(layer, name + direction) for name in ("conv1d", "x_proj", "dt_proj"))
    padded = F.pad(x, (conv.weight.shape[2] - 1, 0))
    u = F.silu(F.conv1d(padded, conv.weight, conv.bias, groups=x.shape[1]))
    dt, B, C = (x_proj.weight @ u).split([layer.dt_rank, layer.d_state, layer.d_state], dim=1)
    return [u, F.softplus(dt_proj.weight @ dt + dt_proj.bias[:, None]), B, C]


def mamba(layer: nn.Module, tokens: Tensor) -> Tensor:
    """The whole layer, flipping the tokens where the layer reads backwards."""
    xz = layer.in_proj.weight @ tokens.transpose(1, 2)
    if layer.in_proj.bias is not None:
        xz = xz + layer.in_proj.bias[:, None]
    x, z = xz.chunk(2, dim=1)
    u, delta, B, C = projected(layer, x)
    y, _ = scan(u, delta, -layer.A_log.exp(), B, C, layer.D)
    if layer.bimamba_type == "v1":
        flipped = [t.flip(2) for t in (u, delta, B, C)]
        backward, _ = scan(*flipped[:2], -layer.A_b_log.exp(), *flipped[2:], layer.D)
        y = y + backward.flip(2)
    if layer.bimamba_type == "v2":
        u, delta, B, C = projected(layer, x.flip(2), "_b")
        backward, _ = scan(u, delta, -layer.A_b_log.exp(), B, C, layer.D_b)
        y = y + backward.flip(2)
    if layer.if_divide_out:
        y = y / 2
    out = F.linear((y * F.silu(z)).transpose(1, 2), layer.out_proj.weight, layer.out_proj.bias)
    return out if layer.init_layer_scale is None else out * layer.gamma
