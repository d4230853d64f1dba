"""The sequence a Vision Mamba sees: patches in reading order, with the class token in their middle.

Of n patches, n//2 come before the class token. The scans run from both ends, so the middle sees as much from either.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["insert_middle", "middle_token", "resample_pos_embed", "split_middle"]


def insert_middle(patches: Tensor, token: Tensor) -> Tensor:
    """(batch, n, d) patches and a (1, 1, d) token → (batch, n + 1, d)."""
    before = patches.shape[1] // 2
    return torch.cat((patches[:, :before], token.expand(patches.shape[0], -1, -1), patches[:, before:]), dim=1)


def middle_token(tokens: Tensor) -> Tensor:
    """The class token of (batch, n + 1, d) tokens, (batch, d)."""
    return tokens[:, (tokens.shape[1] - 1) // 2]


def split_middle(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """The inverse of `insert_middle`: (batch, n + 1, d) → patches (batch, n, d) and the class token (batch, 1, d)."""
    before = (tokens.shape[1] - 1) // 2
    patches = torch.cat((tokens[:, :before], tokens[:, before + 1 :]), dim=1)
    return patches, tokens[:, before : before + 1]


def resample_pos_embed(pos_embed: Tensor, old_grid: tuple[int, int], new_grid: tuple[int, int]) -> Tensor:
    """Resample position embeddings (1, h·w + 1, d) to another grid of patches; the class token stays in the middle.

    The grids are (height, width) in patches and need not be square. Bicubic with antialiasing, in at least float32.
    """
    if pos_embed.shape[1] != old_grid[0] * old_grid[1] + 1:
        raise ValueError(
            f"pos_embed has {pos_embed.shape[1]} rows, but a grid of {old_grid[0]} x {old_grid[1]} patches "
            f"and the class token need {old_grid[0] * old_grid[1] + 1}"
        )
    known = all(isinstance(side, int) for side in new_grid)  # a program for images of any size always resamples
    if known and tuple(old_grid) == tuple(new_grid):
        return pos_embed
    patches, token = split_middle(pos_embed)
    picture = patches.unflatten(1, old_grid).permute(0, 3, 1, 2)  # (1, d, h, w)
    picture = picture.to(torch.promote_types(picture.dtype, torch.float32))
    picture = F.interpolate(picture, size=new_grid, mode="bicubic", antialias=True)
    return insert_middle(picture.flatten(2).transpose(1, 2).to(pos_embed.dtype), token)
