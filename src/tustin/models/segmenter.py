"""A model that tells the class of every pixel: Vision Mamba, a feature pyramid and UperNet's heads (arXiv 1807.10221).

The heads are those of Hugging Face transformers, which follow OpenMMLab's: pyramid pooling of 1, 2, 3 and 6, and an
auxiliary head that reads the map of stride 16 in training.
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..support.masks import starts
from ..support.ranges import Range
from .pyramid import STRIDES, FeaturePyramid
from .vision_mamba import VisionMamba, Width

__all__ = ["Segmenter"]

CLASSES_AT_ONCE = 16
"""How many are brought to the size of an image together: all 150 of a large photograph would take gigabytes."""


class Segmenter(nn.Module):
    """Images (batch, channels, height, width) of any size → logits (batch, classes, height, width).

    In training it returns a pair: these logits, and those of the auxiliary head.

    Args:
        vim: The backbone; its head is removed. Its image size is the side of training crops and of sliding windows.
        num_classes: Number of classes.
        channels: Width of both heads; default: the width of a token.
    """

    task = "segmentation"
    classes = "num_classes"

    def __init__(
        self, vim: VisionMamba, num_classes: Annotated[int, Range(1, 2**15 - 1)], channels: Width | None = None
    ) -> None:
        super().__init__()
        channels = vim.embed_dim if channels is None else channels
        self.backbone = FeaturePyramid(vim)
        self.head, self.auxiliary_head = _heads(vim.embed_dim, num_classes, channels)
        self.num_classes = num_classes
        self.config: dict[str, Any] = {
            "discretization": vim.config["discretization"],
            "num_classes": num_classes,
            "channels": channels,
            "backbone": vim.config,
        }

    @property
    def vim(self) -> VisionMamba:
        return self.backbone.vim

    @property
    def pretrained_cfg(self) -> dict[str, Any]:
        """Image preparation and class names, as in timm's models."""
        vim: Any = self.vim
        about: dict[str, Any] = vim.pretrained_cfg
        return about

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        if self.training and len(images) == 1:
            raise ValueError(
                "pyramid pooling uses batch norm, so training needs at least two images per forward pass: "
                "optim.batch_size must be at least 2 x processes x optim.accumulate"
            )
        maps, size = self.backbone(images), images.shape[-2:]
        logits = _enlarged(self.head(maps), STRIDES[0], size)
        if not self.training:
            return logits
        return logits, _enlarged(self.auxiliary_head(maps), STRIDES[2], size)

    @torch.no_grad()
    def segment(
        self, image: Tensor, size: tuple[int, int], window: int | None = None, stride: int | None = None
    ) -> Tensor:
        """The class of every pixel (height, width) of one image (channels, h, w), at the given `size`.

        Args:
            image: The image, prepared as the model expects it.
            size: Height and width of the result, to which the logits are resampled before the largest is chosen.
            window: Side of a sliding window; default: the whole image at once.
            stride: Pixels between windows.
        """
        side = max(image.shape[-2:]) if window is None else window
        return _largest(self._slide(image, side, stride or side), size)

    def _slide(self, image: Tensor, side: int, stride: int) -> Tensor:
        """The mean of the logits of all windows that see a pixel, (classes, h, w)."""
        total = image.new_zeros(self.num_classes, *image.shape[-2:], dtype=torch.float32)
        seen = image.new_zeros(image.shape[-2:], dtype=torch.float32)
        for top in starts(image.shape[-2], side, stride):
            for left in starts(image.shape[-1], side, stride):
                place = slice(top, top + side), slice(left, left + side)
                total[:, *place] += self(image[None, :, *place])[0]
                seen[place] += 1
        return total / seen

    def no_weight_decay(self) -> set[str]:
        """See `VisionMamba.no_weight_decay`; biases and norms of the heads are left out as well."""
        vim = {f"backbone.vim.{name}" for name in self.vim.no_weight_decay()}
        return vim | {name for name, parameter in self.named_parameters() if parameter.ndim <= 1}


def _heads(d: int, num_classes: int, channels: int) -> tuple[nn.Module, nn.Module]:
    try:
        upernet: Any = import_module("transformers.models.upernet.modeling_upernet")
    except ImportError as error:
        raise RuntimeError("segmentation needs transformers: pip install 'tustin[segmentation]'") from error
    config = upernet.UperNetConfig(
        num_labels=num_classes,
        pool_scales=[1, 2, 3, 6],
        hidden_size=channels,
        auxiliary_in_channels=d,
        auxiliary_channels=channels,
    )
    widths = [d] * len(STRIDES)
    return upernet.UperNetHead(config, widths), upernet.UperNetFCNHead(config, widths, in_index=2)


def _enlarged(logits: Tensor, stride: int, size: torch.Size) -> Tensor:
    """The logits of a map of this stride, for every pixel of an image."""
    pixels = F.interpolate(logits.float(), scale_factor=float(stride), mode="bilinear")
    return pixels[..., : size[0], : size[1]]


def _largest(logits: Tensor, size: tuple[int, int]) -> Tensor:
    """(classes, h, w) → the class of the largest logit of each pixel of an image of `size`."""
    best, chosen = torch.full(size, -torch.inf, device=logits.device), torch.zeros(size, dtype=torch.long)
    chosen = chosen.to(logits.device)
    for first in range(0, len(logits), CLASSES_AT_ONCE):
        some = F.interpolate(logits[None, first : first + CLASSES_AT_ONCE], size, mode="bilinear")[0]
        value, index = some.max(dim=0)
        chosen = torch.where(value > best, index + first, chosen)
        best = torch.maximum(best, value)
    return chosen
