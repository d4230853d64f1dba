"""What a Vision Mamba costs: parameters, operations and memory, counted from its sizes. docs/models.md explains how."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ..discretize import DISCRETIZATIONS
from .vision_mamba import VisionMamba

__all__ = ["COEFFICIENT_OPERATIONS", "Costs", "costs", "scan_operations"]

COEFFICIENT_OPERATIONS = {
    "mamba": 1,  # e^z; β is Δ itself
    "zoh": 4,  # e^z; φ1; ·Δ
    "foh": 7,  # e^z; φ1, φ2; ·Δ·Δ
    "bil": 5,  # z/2; 1 + z/2; 1 − z/2; two divisions
    "pol": 9,  # e^z; φ1, φ2; Δ·(φ1 + Δ·½φ2)
    "hoh": 13,  # e^z; φ1, φ2, φ3; Δ·(φ1 + Δ·(φ2 + Δ·φ3/2))
    "hoh3": 18,  # e^z; φ1 … φ4; Δ·(φ1 + Δ·(φ2 + Δ·(φ3/2 + Δ·φ4/6)))
    "rk4": 10,  # as rk4_raw, and the smaller of Δ and z*/A
    "rk4_raw": 9,  # b = ((z/24 + 1/6)·z + 1/2)·z + 1; α = 1 + z·b; β = Δ·b
    "true_foh": 8,  # e^z; φ1, φ2; ·Δ; φ1 − φ2, ·Δ
    "true_bil": 6,  # z/2; 1 + z/2; 1 − z/2; Δ/2; two divisions
    "exptrap": 5,  # e^z; λ·Δ; 1 − λ, ·Δ, ·e^z
    "true_hoh": 20,  # e^z; φ1, φ2, φ3; ψ = 2φ3 − φ2; r; Δ·ψ·r; /(1 + r); ·r; Δ·φ2 and Δ·(φ1 − φ2), and what is added
}
"""Operations for α and β, given Δ and z, of one state at one token; φ_{k+1} = (φ_k − 1/k!)/z takes two."""

_SILU = 4  # exp, +, division, ·
_SIGMOID = 3  # exp, +, division
_SOFTPLUS = 3  # exp, +, log
_RMS_NORM = 4  # square, sum, · 1/rms, · weight; what is once per token is left out
_CHUNK = 32  # tokens per state that the native scan keeps for its backward pass
_BYTES = 4


@dataclass(frozen=True)
class Costs:
    """Of one model at one size of images; operations are per image, memory is for a batch."""

    img_size: tuple[int, int]
    tokens: int
    batch_size: int
    discretization: str
    parameters: dict[str, int]
    """By part."""
    flops: dict[str, int]
    """By part. A multiplication, an addition, a division and an exponential are one each."""
    scan_flops: dict[str, int]
    """What the part `scan` would be with each rule."""
    memory: dict[str, int]
    """Bytes in float32: weights, activations_inference and activations_training."""

    def as_facts(self) -> dict[str, Any]:
        """Plain values, with the totals."""
        return {
            **asdict(self),
            "img_size": list(self.img_size),
            "parameters": {**self.parameters, "total": sum(self.parameters.values())},
            "flops": {**self.flops, "total": sum(self.flops.values())},
        }


def costs(model: VisionMamba, img_size: tuple[int, int] | None = None, batch_size: int = 8) -> Costs:
    """Count for images of `img_size`, by default the size that the model is made for."""
    height, width = img_size or model.config["img_size"]
    rows, columns = model.patch_embed.grid_of(height, width)
    tokens = rows * columns + 1
    parameters = _parameters(model)
    flops = _flops(model, rows * columns)
    per_discretization = {
        name: len(model.layers) * 2 * scan_operations(model, tokens, name) for name in DISCRETIZATIONS
    }
    kept_inference, kept_training = _kept(model, tokens)
    image = model.config["in_chans"] * height * width
    memory = {
        "weights": _BYTES * sum(parameters.values()),
        "activations_inference": _BYTES * batch_size * (image + kept_inference),
        "activations_training": _BYTES * batch_size * (image + kept_training),
    }
    return Costs(
        img_size=(height, width),
        tokens=tokens,
        batch_size=batch_size,
        discretization=model.config["discretization"],
        parameters=parameters,
        flops=flops,
        scan_flops=per_discretization,
        memory=memory,
    )


def scan_operations(model: VisionMamba, tokens: int, discretization: str) -> int:
    """Operations of one scan in one direction of one block.

    Of a state at a token: z = Δ·A, α and β, B·u, ·β, the recurrence (two), and C·h added to the output (two); and for
    each sample before the newest ·β and a sum.
    Of a channel at a token: softplus and its bias, D·u added, and the gate. The α and β of a rule that is not built in
    count nothing.
    """
    _, D, N, _ = _sizes(model)
    if not model.config["state"]:
        return tokens * D
    rule = DISCRETIZATIONS.get(discretization)  # a file may name one that is not here: it counts as one sample
    state = 7 + 2 * (rule.taps - 1 if rule else 0) + COEFFICIENT_OPERATIONS.get(discretization, 0)
    channel = 1 + _SOFTPLUS + 2 + _SILU + 1
    return tokens * D * (N * state + channel)


def _sizes(model: VisionMamba) -> tuple[int, int, int, int]:
    """Width d, channels D, states N and the rank of dt."""
    d = model.embed_dim
    return d, 2 * d, model.config["d_state"], -(-d // 16)


_PART_OF = {
    "patch_embed": "patch embedding",
    "pos_embed": "positions, class token",
    "cls_token": "positions, class token",
    "norm": "norms",
    "norm_f": "norms",
    "head": "head",
    "in_proj": "in_proj",
    "conv1d": "conv",
    "x_proj": "x_proj",
    "dt_proj": "dt_proj",
    "mix_proj": "mix_proj",
    "A_log": "scan",
    "A": "scan",  # A_b_log without its direction
    "D": "scan",
    "out_proj": "out_proj",
}


def _parameters(model: VisionMamba) -> dict[str, int]:
    counted = dict.fromkeys(_PART_OF.values(), 0)
    for name, parameter in model.named_parameters():
        inside = name.removeprefix("layers.").lstrip("0123456789.").removeprefix("mixer.")
        part = inside.split(".")[0].removesuffix("_b_log").removesuffix("_b")
        counted[_PART_OF[part]] += parameter.numel()
    if not _learns_mix(model):
        del counted["mix_proj"]
    return counted


def _learns_mix(model: VisionMamba) -> bool:
    rule = DISCRETIZATIONS.get(model.config["discretization"])
    return bool(model.config["state"] and rule and rule.mixes)


def _flops(model: VisionMamba, patches: int) -> dict[str, int]:
    d, D, N, rank = _sizes(model)
    L, blocks = patches + 1, len(model.layers)
    pixels = model.config["in_chans"] * model.config["patch_size"] ** 2
    projections = blocks * 2 * 2 * L * D if model.config["state"] else 0
    return {
        "patch embedding": 2 * patches * pixels * d,
        "positions, class token": L * d,
        "in_proj": blocks * 2 * L * d * 2 * D,
        "conv": blocks * 2 * L * D * (2 * model.config["d_conv"] + _SILU),
        "x_proj": projections * (rank + 2 * N),
        "dt_proj": projections * rank,
        **({"mix_proj": projections * 2 * rank + blocks * 2 * L * D * _SIGMOID} if _learns_mix(model) else {}),
        "scan": blocks * 2 * scan_operations(model, L, model.config["discretization"]),
        "out_proj": blocks * (L * D + 2 * L * D * d + L * d),  # the two directions added, the product, halved
        "norms": (blocks + 1) * _RMS_NORM * L * d + blocks * L * d,  # and the residual sums
        "head": 2 * d * model.num_classes,
    }


def _kept(model: VisionMamba, L: int) -> tuple[int, int]:
    """Numbers alive at once for one image: at the peak of inference, and after the forward pass of training."""
    d, D, N, rank = _sizes(model)
    stream, projections = L * d, L * (rank + 2 * N)
    channels = L * D
    # Residual stream, its norm, the result of one direction; of the other: u, projections, Δ, result.
    inference = 2 * stream + channels + (3 * channels + projections)
    states = -(-L // _CHUNK) * D * N
    direction = 2 * channels + projections + states  # u, Δ
    norm = 2 * stream  # what goes in, what comes out
    block = norm + channels + 2 * direction + 4 * channels  # x; results of the directions, gate, product
    return inference, len(model.layers) * block + norm
