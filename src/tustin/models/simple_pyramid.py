"""The simple feature pyramid (arXiv 2203.16527): maps of five sizes, all made from the last map of a plain backbone.

tokens ─ map, stride s ─┬─ two transposed convolutions ─ stride s/4
                        ├─ one transposed convolution ── stride s/2
                        ├─────────────────────────────── stride s
                        └─ max pooling ───────────────── stride 2s ─ every second pixel ─ stride 4s
"""

from __future__ import annotations

from timm.layers import LayerNorm2d
from torch import Tensor, nn
from torch.nn import functional as F

from .vision_mamba import VisionMamba

__all__ = ["SimplePyramid"]


class SimplePyramid(nn.Module):
    """Images (batch, channels, height, width) → maps of `out_channels`, by the text of their stride, finest first.

    Height and width must be multiples of the coarsest stride. The maps are float32 whatever the precision of the
    backbone, because torchvision gives boxes the dtype of the maps.
    """

    def __init__(self, vim: VisionMamba, out_channels: int = 256) -> None:
        super().__init__()
        patch, stride, d = vim.config["patch_size"], vim.config["stride"], vim.embed_dim
        if patch != stride or stride % 4:
            raise ValueError(
                f"a feature pyramid needs patches that do not overlap and have a side that is a multiple of 4; "
                f"the model has patches of {patch} with a stride of {stride}"
            )
        vim.reset_classifier(0)
        self.vim = vim
        self.out_channels = out_channels
        self.strides = [stride // 4, stride // 2, stride, 2 * stride, 4 * stride]
        finest = nn.Sequential(_double(d, d // 2), LayerNorm2d(d // 2), nn.GELU(), _double(d // 2, d // 4))
        scales = [(finest, d // 4), (_double(d, d // 2), d // 2), (nn.Identity(), d), (nn.MaxPool2d(2), d)]
        self.levels = nn.ModuleList(nn.Sequential(scale, *_smooth(width, out_channels)) for scale, width in scales)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        last = self.vim.forward_intermediates(images, indices=1, norm=True, intermediates_only=True)[0]
        maps = [level(last) for level in self.levels]
        maps.append(F.max_pool2d(maps[-1], kernel_size=1, stride=2))
        return {str(stride): level.float() for stride, level in zip(self.strides, maps, strict=True)}


def _double(width: int, out_channels: int) -> nn.Module:
    """Twice the height and width."""
    return nn.ConvTranspose2d(width, out_channels, kernel_size=2, stride=2)


def _smooth(width: int, out_channels: int) -> list[nn.Module]:
    return [
        nn.Conv2d(width, out_channels, kernel_size=1, bias=False),
        LayerNorm2d(out_channels),
        nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1, bias=False),
        LayerNorm2d(out_channels),
    ]
