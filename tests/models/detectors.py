"""A detector small enough for a test, and objects for it to find."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tustin.models import VisionMamba
from tustin.models.detector import Detector

SIDE = 64


def small_detector(discretization: str = "bil", categories: int = 2, side: int = SIDE) -> Detector:
    torch.manual_seed(0)
    vim = VisionMamba(side, patch_size=8, embed_dim=16, depth=1, d_state=4, discretization=discretization)
    return Detector(vim, range(1, categories + 1), channels=8, hidden=16, proposals=20, samples=8)


def target(*boxes: tuple[float, float, float, float], side: int = SIDE, label: int = 1) -> dict[str, Tensor]:
    """One object in each box, which it fills."""
    masks = torch.zeros(len(boxes), side, side, dtype=torch.uint8)
    for mask, (left, top, right, bottom) in zip(masks, boxes, strict=True):
        mask[round(top) : round(bottom), round(left) : round(right)] = 1
    return {
        "boxes": torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4),
        "labels": torch.full((len(boxes),), label),
        "masks": masks,
    }


def images(number: int, side: int = SIDE) -> list[Tensor]:
    return list(torch.rand(number, 3, side, side, generator=torch.Generator().manual_seed(0)))


def features(detector: Detector, number: int = 1, side: int = SIDE) -> Any:
    """What the cascade gets from the pyramid, for images without content."""
    return {
        str(stride): torch.randn(number, 8, side // stride, side // stride, generator=torch.Generator().manual_seed(1))
        for stride in detector.backbone.strides
    }
