"""What a Vision Mamba is made of: patches, and blocks of a norm and a mixer around a residual stream."""

from __future__ import annotations

from timm.layers import DropPath
from torch import Tensor, nn

from ..ops.rowwise import beside, rms_norm
from .mixer import Mixer

__all__ = ["Block", "PatchEmbed", "RMSNorm"]

_EPS = 1e-5


class RMSNorm(nn.RMSNorm):
    """Reads the residual stream in its own precision; the result has the dtype of the weight."""

    def __init__(self, d: int, backend: str) -> None:
        super().__init__(d, eps=_EPS)
        self.backend = beside(backend)

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, _EPS, backend=self.backend)


class PatchEmbed(nn.Module):
    """(batch, channels, height, width) → (batch, d, h, w), a grid of patches, overlapping where stride < patch."""

    def __init__(self, img_size: tuple[int, int], patch_size: int, stride: int, in_chans: int, embed_dim: int) -> None:
        super().__init__()
        self.img_size, self.patch_size, self.stride = img_size, (patch_size, patch_size), stride
        self.proj = nn.Conv2d(in_chans, embed_dim, kernel_size=patch_size, stride=stride)
        self.grid_size = self.grid_of(*img_size)
        self.num_patches = self.grid_size[0] * self.grid_size[1]

    def grid_of(self, height: int, width: int) -> tuple[int, int]:
        """How many patches an image gives, down and across."""
        patch = self.patch_size[0]
        if height < patch or width < patch:
            raise ValueError(f"an image of {height} x {width} is smaller than a patch of {patch} x {patch}")
        return (height - patch) // self.stride + 1, (width - patch) // self.stride + 1

    def unread(self) -> str | None:
        """A sentence about what no patch of an image covers, if there is something."""
        patch, stride = self.patch_size[0], self.stride
        left = [(side - patch) % stride for side in self.img_size]
        if not any(left):
            return None
        (height, width), steps = self.img_size, f" every {stride} px" if stride != patch else ""
        places = [f"{n} px at the {end}" for n, end in zip(left, ("bottom", "right"), strict=True) if n]
        unread = " and ".join(places)
        return f"patches of {patch} px{steps} leave a remainder of images of {height} x {width}: {unread} are not read"

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 4 or x.shape[1] != self.proj.in_channels:
            expected = f"(batch, {self.proj.in_channels}, height, width)"
            raise ValueError(f"the model expects images {expected}, got a tensor of shape {tuple(x.shape)}")
        self.grid_of(x.shape[2], x.shape[3])  # refuses what is too small with a sentence of its own
        grid: Tensor = self.proj(x)
        return grid


class Block(nn.Module):
    """x + mixer(norm(x)), with x, the residual stream, in float32 whatever the dtype of the weights."""

    def __init__(self, mixer: Mixer, d: int, drop_path: float) -> None:
        super().__init__()
        self.norm = RMSNorm(d, mixer.backend)
        self.mixer = mixer
        self.drop_path = DropPath(drop_path) if drop_path > 0 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        change: Tensor = self.drop_path(self.mixer(self.norm(x)))
        return x + change
