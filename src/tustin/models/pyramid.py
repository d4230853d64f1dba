"""A feature pyramid from a plain backbone: four blocks of a Vision Mamba, each as a map of its own stride.

    images ─ patches ─ blocks ──┬──────────┬──────────┬──────────┐
                              depth/4    depth/2   3·depth/4   depth         (blocks 5, 11, 17, 23 of 24)
                                │          │          │          │
                            upsampled  upsampled    as it is  max pooling    (where a patch is 16 pixels)
                                │          │          │          │
                             stride 4   stride 8   stride 16  stride 32

docs/segmentation.md shows it as a picture.
"""

from __future__ import annotations

import math

import torch.nn.functional as F
from timm.layers import LayerNorm2d
from torch import Tensor, nn

from .vision_mamba import VisionMamba

__all__ = ["STRIDES", "FeaturePyramid", "evenly_spaced_blocks"]

STRIDES = (4, 8, 16, 32)


class FeaturePyramid(nn.Module):
    """Images (batch, channels, height, width) of any size → four maps (batch, d, h, w), the finest first.

    An image is padded with zeros on the right and below to a whole number of patches. If patches overlap, a margin is
    added on all sides, so that each position on a map belongs to the pixels in the middle of its patch. So the finest
    map has height/4 x width/4 positions, rounded up to whole patches, and starts where the image starts.
    """

    def __init__(self, vim: VisionMamba) -> None:
        super().__init__()
        stride, d = vim.patch_embed.stride, vim.embed_dim
        if stride > STRIDES[-1] or stride & (stride - 1):
            raise ValueError(f"a feature pyramid needs patches with a stride of 1, 2, 4, 8, 16 or 32, got {stride}")
        vim.reset_classifier(0)
        self.vim = vim
        self.blocks = evenly_spaced_blocks(len(vim.layers))
        self.levels = nn.ModuleList(_resampled(d, stride, wanted) for wanted in STRIDES)

    def forward(self, images: Tensor) -> list[Tensor]:
        images, chosen = self._filled_up(images), sorted(set(self.blocks))
        maps = self.vim.forward_intermediates(images, indices=chosen, norm=True, intermediates_only=True)
        by_block = dict(zip(chosen, maps, strict=True))
        return [level(by_block[block]) for level, block in zip(self.levels, self.blocks, strict=True)]

    def _filled_up(self, images: Tensor) -> Tensor:
        patch, stride = self.vim.patch_embed.patch_size[0], self.vim.patch_embed.stride
        margin = (patch - stride) // 2
        height, width = images.shape[-2:]
        right, below = (-side % stride + patch - stride - margin for side in (width, height))
        return F.pad(images, (margin, right, margin, below))


def evenly_spaced_blocks(depth: int) -> list[int]:
    """The last block of each quarter; a model with fewer than four blocks gives some of them more than once."""
    return [math.ceil(depth * quarter / 4) - 1 for quarter in (1, 2, 3, 4)]


def _resampled(d: int, stride: int, wanted: int) -> nn.Module:
    """A map of one stride → a map of another: learned where it grows, the maximum where it shrinks."""
    if stride <= wanted:
        return nn.MaxPool2d(wanted // stride, ceil_mode=True) if stride < wanted else nn.Identity()
    steps: list[nn.Module] = [nn.ConvTranspose2d(d, d, kernel_size=2, stride=2)]
    while (stride := stride // 2) > wanted:
        steps += [LayerNorm2d(d), nn.GELU(), nn.ConvTranspose2d(d, d, kernel_size=2, stride=2)]
    return nn.Sequential(*steps)
