"""What an exported file says about itself, and what of a model can be exported at all."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from timm.data import resolve_model_data_config
from torch import Tensor, nn

from .. import __version__
from ..models.vision_mamba import unwrapped
from ..train.evaluation import reading_of_masks

__all__ = ["DYNAMIC", "INPUT", "OUTPUT", "SEED", "describe_for_export", "dynamic_shapes", "prepared", "samples"]

INPUT, OUTPUT = "images", "logits"
DYNAMIC = ("batch", "height", "width")
"""Names of the input dimensions that can be dynamic in an exported model."""
TASKS = ("classification", "segmentation")
SEED = 0


def prepared(model: nn.Module) -> Any:
    """A copy in evaluation mode and float32, on the CPU, of a model that can be exported."""
    plain = unwrapped(model)
    if plain.task not in TASKS:
        raise ValueError(
            f"a model for {plain.task} cannot be exported: its number of boxes depends on the image, which neither "
            f"format supports; export a model for {' or '.join(TASKS)}, or use tustin.load"
        )
    return copy.deepcopy(plain).float().cpu().eval().requires_grad_(False)


def describe_for_export(
    model: Any, dynamic_size: bool, trained_with: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The facts that a program needs to run the file: how to prepare an image, and what the results mean."""
    about = getattr(model, "pretrained_cfg", {})
    names = about.get("label_names")
    data = resolve_model_data_config(getattr(model, "vim", model))
    return {
        "tustin": __version__,
        "task": model.task,
        "architecture": about.get("architecture"),
        "discretization": model.config["discretization"],
        "num_classes": model.num_classes,
        "class_names": list(names) if names and len(names) == model.num_classes else None,
        "input_size": list(data["input_size"]),
        "dynamic_size": dynamic_size,
        "mean": list(data["mean"]),
        "std": list(data["std"]),
        "interpolation": data["interpolation"],
        "crop_pct": data["crop_pct"],
        "crop_mode": data["crop_mode"],
        **(_of_masks(trained_with or {}) if model.task == "segmentation" else {}),
    }


def _of_masks(trained_with: Mapping[str, Any]) -> dict[str, Any]:
    """How a segmenter reads an image, and how its masks are written, by the settings that it was trained with."""
    settings, unlabelled = reading_of_masks(trained_with)
    names = ("long_side", "short_side", "window", "window_stride")
    return {name: getattr(settings, name) for name in names} | {"unlabelled": unlabelled}


def samples(model: Any, dynamic_size: bool) -> list[Tensor]:
    """Random images to check a file with: two numbers of them, and if the size is dynamic, two other sizes."""
    vim = getattr(model, "vim", model)
    channels, (height, width), step = vim.config["in_chans"], vim.config["img_size"], vim.config["patch_size"]
    sizes = [(height, width), (height, width)]
    if dynamic_size:
        sizes = [(height + 2 * step, width + step), (height, width), (height, width + 3 * step)]
    random = torch.Generator().manual_seed(SEED)
    batches = (2, 1, 3) if dynamic_size else (3, 1)
    return [torch.randn(n, channels, *size, generator=random) for n, size in zip(batches, sizes, strict=True)]


def dynamic_shapes(dynamic_size: bool) -> tuple[dict[int, Any], ...]:
    """Of the images: which dimensions are open."""
    places = (0, 2, 3) if dynamic_size else (0,)
    return (dict.fromkeys(places, torch.export.Dim.DYNAMIC),)
