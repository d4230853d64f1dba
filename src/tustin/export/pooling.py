"""Adaptive pooling as two matrix products, because ONNX has none for maps of any size."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["pool_by_products"]


class Pooling(nn.Module):
    """`nn.AdaptiveAvgPool2d` of a square number of bins."""

    def __init__(self, bins: int) -> None:
        super().__init__()
        self.bins = bins

    def forward(self, maps: Tensor) -> Tensor:
        """(…, height, width) → (…, bins, bins)."""
        height, width = maps.shape[-2:]
        return _means(height, self.bins) @ maps @ _means(width, self.bins).T


def _means(length: int, bins: int) -> Tensor:
    """(bins, length): bin i is the mean of the samples from ⌊i·length/bins⌋ to before ⌈(i+1)·length/bins⌉."""
    bin_, sample = torch.arange(bins)[:, None], torch.arange(length)[None]
    first, end = bin_ * length // bins, ((bin_ + 1) * length + bins - 1) // bins
    return ((sample >= first) & (sample < end)).float() / (end - first).float()


def pool_by_products(model: nn.Module) -> None:
    """Replace the adaptive pooling in UperNet's heads, in place; a block also lists its layers outside of PyTorch."""
    for block in model.modules():
        for name, layer in list(block.named_children()):
            if isinstance(layer, nn.AdaptiveAvgPool2d) and isinstance(layer.output_size, int):
                setattr(block, name, Pooling(layer.output_size))
                if isinstance(listed := vars(block).get("layers"), list):
                    listed[listed.index(layer)] = getattr(block, name)
