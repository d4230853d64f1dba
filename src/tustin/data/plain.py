"""Crop, flip and scale of whole batches: what most of the augmentation of small images is, without a loop over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import pad

from .decoded import Pixels

__all__ = ["Plain"]

_FLIPS = 2**20
"""Steps in which the probability of a flip is counted."""


@dataclass(frozen=True)
class Plain:
    """Images → (batch, channels, height, width), normalised. A sample depends on its own image and seed only.

    An image that is padded by `margin` pixels of black on every side is cropped at one of (2·margin + 1)² places, and
    flipped with the probability `flip`.
    """

    size: tuple[int, int]
    resize: Callable[[Image.Image], Image.Image]
    """To this size, of an image of any other."""
    keeps_size: bool
    """Whether an image that has the size is left as it is."""
    mean: tuple[float, ...]
    std: tuple[float, ...]
    margin: tuple[int, int] = (0, 0)
    flip: float = 0.0

    def fits(self, pixels: Pixels, mode: str) -> bool:
        """Whether an array needs no resizing and has the channels of this mode."""
        channels = pixels.shape[2] if pixels.ndim == 3 else 1
        return self.keeps_size and pixels.shape[:2] == self.size and channels == len(mode)

    def array(self, image: Image.Image) -> Pixels:
        """The image in the size, (height, width) or (height, width, channels)."""
        return np.asarray(self.resize(image))

    def batch(self, pixels: Tensor, seeds: Tensor) -> Tensor:
        """(batch, height, width) or (batch, height, width, channels) in uint8, and a seed for each, for training."""
        images = pixels if pixels.ndim == 4 else pixels[..., None]
        if any(self.margin) or self.flip:
            images = self._moved(images, seeds)
        mean, std = (torch.tensor(values)[:, None, None] for values in (self.mean, self.std))
        return (
            images.permute(0, 3, 1, 2)
            .to(torch.float32, memory_format=torch.contiguous_format)
            .div_(255)
            .sub_(mean)
            .div_(std)
        )

    def _moved(self, images: Tensor, seeds: Tensor) -> Tensor:
        down, across = self.margin
        height, width = self.size
        rows = torch.arange(height) + (seeds % (2 * down + 1))[:, None]  # (batch, height)
        seeds = seeds // (2 * down + 1)
        columns = torch.arange(width).expand(len(images), width)
        flipped = seeds // (2 * across + 1) % _FLIPS < self.flip * _FLIPS
        columns = torch.where(flipped[:, None], columns.flip(1), columns) + (seeds % (2 * across + 1))[:, None]
        padded = pad(images, (0, 0, across, across, down, down))
        return padded[torch.arange(len(images))[:, None, None], rows[:, :, None], columns[:, None, :]]
