"""What masks need without PyTorch: the size at which an image is read, where windows begin, and the values in files."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from .pictures import insist_on_pixels

__all__ = ["Pixels", "fitted", "starts", "values_of"]

Pixels: TypeAlias = np.ndarray[Any, np.dtype[Any]]


def fitted(height: int, width: int, long_side: float, short_side: float) -> tuple[int, int]:
    """Height and width in the same proportions, as large as both limits allow."""
    scale = min(long_side / max(height, width), short_side / min(height, width))
    size = max(1, round(height * scale)), max(1, round(width * scale))
    insist_on_pixels(*size)
    return size


def starts(length: int, side: int, stride: int) -> list[int]:
    """Where windows begin: `stride` apart, the last one at the end of the image."""
    last = max(length - side, 0)
    return [*range(0, last, stride), last]


def values_of(classes: Pixels, unlabelled: int) -> Pixels:
    """The values that a mask in a file has for these classes."""
    return classes + (classes >= unlabelled)
