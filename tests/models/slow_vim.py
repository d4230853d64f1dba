"""Vision Mamba a second time, from its definition: flips, conv1d, a loop over time, and nothing of tustin.models.

It reads the parameters by their official names, in float64, and shares no code with what it judges.
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tustin import DISCRETIZATIONS

Parameters = Mapping[str, Tensor]


def small(**kwargs: Any) -> dict[str, Any]:
    """Arguments of a model that is quick to run; z stays where every rule is stable if both directions start alike."""
    sizes = {"img_size": 12, "patch_size": 4, "num_classes": 5, "embed_dim": 20, "depth": 2, "d_state": 4}
    return {**sizes, **kwargs}


def randomise(model: nn.Module, seed: int = 0) -> None:
    """Move every parameter away from a value such as 0 or 1 that would hide a mistake."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=random).to(p))


def double_parameters(model: nn.Module) -> dict[str, Tensor]:
    """The parameters by name, in float64, each a leaf that wants its gradient."""
    return {name: p.detach().double().requires_grad_() for name, p in model.named_parameters()}


def vim(parameters: Parameters, images: Tensor, config: Mapping[str, Any]) -> Tensor:
    """Logits of float64 images of the size in `config`."""
    return (
        tokens(parameters, images, config)[-1][:, _middle(images, config)] @ parameters["head.weight"].T
        + (parameters["head.bias"])
    )


def tokens(parameters: Parameters, images: Tensor, config: Mapping[str, Any]) -> list[Tensor]:
    """The residual stream after each block, then the normalised one."""
    patch, stride, batch = config["patch_size"], config["stride"], len(images)
    columns = F.unfold(images, patch, stride=stride)  # (batch, in_chans · patch², n)
    projection = parameters["patch_embed.proj.weight"].flatten(1)
    x = (projection @ columns).transpose(1, 2) + parameters["patch_embed.proj.bias"]
    at = _middle(images, config)
    x = torch.stack([*x[:, :at].unbind(1), parameters["cls_token"][0].expand(batch, -1), *x[:, at:].unbind(1)], dim=1)
    x = x + parameters["pos_embed"]
    stages = []
    for i in range(config["depth"]):
        layer = {k.removeprefix(f"layers.{i}."): p for k, p in parameters.items() if k.startswith(f"layers.{i}.")}
        x = x + mixer(layer, rms_norm(x, layer["norm.weight"]), config["discretization"])
        stages.append(x)
    return [*stages, rms_norm(x, parameters["norm_f.weight"])]


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight


def mixer(layer: Parameters, x: Tensor, discretization: str) -> Tensor:
    """Both directions, the second one on the flipped sequence."""
    xz = (x @ layer["mixer.in_proj.weight"].T).transpose(1, 2)  # (batch, 2·D, L)
    ahead = direction(layer, xz, discretization, "")
    back = direction(layer, xz.flip(-1), discretization, "_b").flip(-1)
    return ((ahead + back) / 2).transpose(1, 2) @ layer["mixer.out_proj.weight"].T


def direction(layer: Parameters, xz: Tensor, discretization: str, suffix: str) -> Tensor:
    def part(name: str) -> Tensor:
        return layer[f"mixer.{name}"]

    x, gate = xz.chunk(2, dim=1)
    D, L = x.shape[1:]
    weight = part(f"conv1d{suffix}.weight")
    u = F.silu(F.conv1d(x, weight, part(f"conv1d{suffix}.bias"), groups=D, padding=weight.shape[2] - 1)[..., :L])
    A = -torch.exp(part("A_b_log" if suffix else "A_log"))  # (D, N)
    N = A.shape[1]
    rank = part(f"dt_proj{suffix}.weight").shape[1]
    projected = torch.einsum("rd,bdl->brl", part(f"x_proj{suffix}.weight"), u)
    dt, B, C = projected.split([rank, N, N], dim=1)
    delta = torch.einsum("dr,brl->bdl", part(f"dt_proj{suffix}.weight"), dt)
    delta = F.softplus(delta + part(f"dt_proj{suffix}.bias")[:, None])
    mix = None  # λ of a rule that has one
    if f"mixer.mix_proj{suffix}.0.weight" in layer:
        down, up = part(f"mix_proj{suffix}.0.weight"), part(f"mix_proj{suffix}.1.weight")
        mix = torch.einsum("dr,re,bel->bdl", up, down, u) + part(f"mix_proj{suffix}.1.bias")[:, None]
    h = u.new_zeros(len(u), D, N)
    out, v = [], []
    for k in range(L):
        now = None if mix is None else mix[:, :, k, None].sigmoid()
        alpha, betas = coefficients(delta[:, :, k, None], A, discretization, now)
        v.insert(0, B[:, None, :, k] * u[:, :, k, None])
        h = alpha * h + sum(beta * sample for beta, sample in zip(betas, v, strict=False))
        out.append((h * C[:, None, :, k]).sum(-1) + part(f"D{suffix}") * u[:, :, k])
    return torch.stack(out, dim=-1) * F.silu(gate)


def coefficients(
    delta: Tensor, A: Tensor, discretization: str, mix: Tensor | None = None
) -> tuple[Tensor, tuple[Tensor, ...]]:
    z = delta * A
    if discretization == "mamba":
        return z.exp(), (delta,)
    return DISCRETIZATIONS[discretization](delta.expand_as(z), z, mix=mix)


def _middle(images: Tensor, config: Mapping[str, Any]) -> int:
    patch, stride = config["patch_size"], config["stride"]
    height, width = ((side - patch) // stride + 1 for side in images.shape[2:])
    return height * width // 2
