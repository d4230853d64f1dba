"""The digits that come with scikit-learn: 1,797 grey images of 8 x 8 pixels, split by a fixed seed."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

from .batches import Batch, Key

CLASSES = [str(digit) for digit in range(10)]


class Digits:
    """1,347 digits for training, or the other 450; `shift` moves images by up to this many pixels each way.

    Batches have "images" (batch, 1, 8, 8), from −1 to 1, and "labels" (batch).
    """

    classes = CLASSES

    def __init__(self, training: bool, shift: int = 0) -> None:
        self.images, self.labels = _load()[0 if training else 1]
        self.shift = shift

    def __len__(self) -> int:
        return len(self.labels)

    def __getitems__(self, keys: list[Key]) -> Batch:
        index, seeds = torch.tensor(keys).T
        images = self.images[index]
        if self.shift:
            images = shifted(images, seeds, self.shift)
        return {"images": images.float().div_(8).sub_(1), "labels": self.labels[index]}


def shifted(images: Tensor, seeds: Tensor, limit: int) -> Tensor:
    """Each image (batch, 1, height, width) moved by up to `limit` pixels down and across, as its seed says."""
    batch, _, height, width = images.shape
    choices = 2 * limit + 1
    down, across = seeds % choices, seeds // choices % choices
    padded = torch.nn.functional.pad(images, (limit,) * 4)
    rows = (torch.arange(height) + down[:, None])[:, None, :, None]  # (batch, 1, height, 1)
    columns = (torch.arange(width) + across[:, None])[:, None, None, :]  # (batch, 1, 1, width)
    return padded[torch.arange(batch)[:, None, None, None], 0, rows, columns]


@cache
def _load() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    pixels, labels = load_digits(return_X_y=True)
    split = train_test_split(pixels, labels, test_size=450, stratify=labels, random_state=0)
    train, test, train_labels, test_labels = (torch.from_numpy(np.asarray(part)) for part in split)

    def images(pixels: Tensor) -> Tensor:
        return pixels.to(torch.uint8).reshape(-1, 1, 8, 8)

    return (images(train), train_labels.long()), (images(test), test_labels.long())
