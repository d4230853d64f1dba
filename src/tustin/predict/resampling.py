"""Logits at the size of an image, with NumPy alone: the same numbers as PyTorch's bilinear interpolation."""

from __future__ import annotations

import numpy as np

from ..support.masks import Pixels

__all__ = ["largest", "resampled"]

CLASSES_AT_ONCE = 16
"""How many are brought to the size of an image together: all 150 of a large photograph would take gigabytes."""


def largest(logits: Pixels, size: tuple[int, int]) -> Pixels:
    """(classes, h, w) → the class of the largest logit of each pixel of an image of `size`."""
    best, chosen = np.full(size, -np.inf, np.float32), np.zeros(size, np.int64)
    for first in range(0, len(logits), CLASSES_AT_ONCE):
        some = resampled(logits[first : first + CLASSES_AT_ONCE], size)
        index, value = some.argmax(axis=0), some.max(axis=0)
        chosen = np.where(value > best, index + first, chosen)
        best = np.maximum(best, value)
    return chosen


def resampled(maps: Pixels, size: tuple[int, int]) -> Pixels:
    """(…, h, w) → (…, *size), bilinear between the centres of pixels."""
    return _along(_along(maps, size[1], -1), size[0], -2)


def _along(maps: Pixels, length: int, axis: int) -> Pixels:
    own = maps.shape[axis]
    if own == length:
        return maps
    place = np.maximum((np.arange(length) + 0.5) * (own / length) - 0.5, 0)
    low = np.minimum(place.astype(np.int64), own - 1)
    weight = (place - low).astype(maps.dtype).reshape(-1, *[1] * (-axis - 1))
    below, above = maps.take(low, axis), maps.take(np.minimum(low + 1, own - 1), axis)
    result: Pixels = below + weight * (above - below)
    return result
