"""What is done to an image and its mask: in training a random scale, crop, flip and distortion; else a fixed size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import InterpolationMode, v2

from ..support.masks import fitted
from .masks import UNLABELLED

__all__ = ["ForEvaluation", "ForTraining"]

TRIES = 10
"""Crops that may show too much of one class before one is taken nevertheless."""


@dataclass(frozen=True)
class ForEvaluation:
    """The image, of a fixed size and normalised; the mask stays as it is."""

    mean: Sequence[float]
    std: Sequence[float]
    long_side: int
    short_side: int

    def __call__(self, image: Image.Image, mask: Tensor) -> tuple[Tensor, Tensor]:
        return self.prepare(image), mask

    def prepare(self, image: Image.Image) -> Tensor:
        """(channels, h, w)."""
        size = fitted(image.height, image.width, self.long_side, self.short_side)
        return _normalised(v2.functional.resize(_pixels(image), list(size), antialias=True), self.mean, self.std)


@dataclass(frozen=True)
class ForTraining:
    """A random crop of the image at a random scale, perhaps flipped and distorted, and the same crop of the mask.

    A crop in which one class has more than `category_ratio` of the labelled pixels is drawn again. What a small image
    leaves empty is the mean colour, and no class. Everything random comes from PyTorch's generator.
    """

    side: int
    mean: Sequence[float]
    std: Sequence[float]
    long_side: int = 2048
    short_side: int = 512
    min_scale: float = 0.5
    max_scale: float = 2.0
    category_ratio: float = 0.75
    flip: float = 0.5
    photometric: bool = True

    def __call__(self, image: Image.Image, mask: Tensor) -> tuple[Tensor, Tensor]:
        pixels, mask = self._crop(*self._scale(_pixels(image), mask))
        if torch.rand(()) < self.flip:
            pixels, mask = pixels.flip(-1), mask.flip(-1)
        if self.photometric:
            pixels = v2.RandomPhotometricDistort()(pixels)
        fill = [0, 0, self.side - mask.shape[1], self.side - mask.shape[0]]  # right and below
        pixels = v2.functional.pad(_normalised(pixels, self.mean, self.std), fill)
        return pixels, v2.functional.pad(mask[None], fill, fill=UNLABELLED)[0]

    def _scale(self, pixels: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        scale = float(torch.empty(()).uniform_(self.min_scale, self.max_scale))
        height, width = mask.shape
        size = list(fitted(height, width, scale * self.long_side, scale * self.short_side))
        nearest = InterpolationMode.NEAREST_EXACT  # the other kind is half a pixel away from the image
        resized = v2.functional.resize(mask[None], size, interpolation=nearest)[0]
        return v2.functional.resize(pixels, size, antialias=True), resized

    def _crop(self, pixels: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        for _ in range(TRIES):
            top, left = (int(torch.randint(max(length - self.side, 0) + 1, ())) for length in mask.shape)
            place = slice(top, top + self.side), slice(left, left + self.side)
            if largest_share(mask[place]) <= self.category_ratio:
                break
        return pixels[:, *place], mask[place]


def largest_share(mask: Tensor) -> float:
    """The share of the most frequent class among the labelled pixels; 1 if there are none."""
    counts = mask[mask != UNLABELLED].bincount()
    return float(counts.max() / counts.sum()) if len(counts) else 1.0


def _pixels(image: Image.Image) -> Tensor:
    return cast(Tensor, v2.functional.pil_to_tensor(image))


def _normalised(pixels: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    values = v2.functional.to_dtype(pixels, torch.float32, scale=True)
    return cast(Tensor, v2.functional.normalize(values, list(mean), list(std)))
