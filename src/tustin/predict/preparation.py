"""How an image becomes what a model reads, with Pillow and NumPy alone.

For a classifier these are the numbers of timm's transforms. For a segmenter they are those of `ForEvaluation`, except
that Pillow rounds a few pixels to the next of their 256 values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image

from ..support.masks import fitted

__all__ = ["prepare", "prepare_whole"]


def prepare(image: Image.Image, facts: Mapping[str, Any]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """(channels, height, width): resized and cropped as crop_mode and crop_pct say, then (pixel/255 − mean) / std."""
    _, height, width = facts["input_size"]
    mode, kind = facts["crop_mode"], Image.Resampling[facts["interpolation"].upper()]
    target = math.floor(height / facts["crop_pct"]), math.floor(width / facts["crop_pct"])
    fill: Any = 0
    if mode == "squash":
        size = target
    elif mode == "border":
        size = _keeping_ratio(image, target, max)
        fill = tuple(round(255 * value) for value in _per_channel(facts["mean"], image))
    elif target[0] == target[1]:
        short = min(image.size)
        size = (int(target[0] * image.height / short), int(target[0] * image.width / short))
    else:
        size, kind = _keeping_ratio(image, target, min), Image.Resampling.BILINEAR
    return _normalised(_cropped(image.resize((size[1], size[0]), kind), height, width, fill), facts)


def prepare_whole(image: Image.Image, facts: Mapping[str, Any]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """(channels, h, w): resized in its proportions until it meets long_side or short_side, then normalised."""
    height, width = fitted(image.height, image.width, facts["long_side"], facts["short_side"])
    return _normalised(image.resize((width, height), Image.Resampling.BILINEAR), facts)


def _normalised(image: Image.Image, facts: Mapping[str, Any]) -> np.ndarray[Any, np.dtype[np.float32]]:
    pixels = np.asarray(image, dtype=np.float32).reshape(image.height, image.width, -1) / np.float32(255)
    mean, std = (np.array(_per_channel(facts[name], image), dtype=np.float32) for name in ("mean", "std"))
    return np.ascontiguousarray(((pixels - mean) / std).transpose(2, 0, 1))


def _keeping_ratio(image: Image.Image, target: tuple[int, int], chosen: Any) -> tuple[int, int]:
    ratio = chosen(image.height / target[0], image.width / target[1])
    return round(image.height / ratio), round(image.width / ratio)


def _per_channel(values: list[float], image: Image.Image) -> list[float]:
    return values if len(values) > 1 else values * len(image.getbands())


def _cropped(image: Image.Image, height: int, width: int, fill: Any) -> Image.Image:
    """The middle, filled up where the image is smaller."""
    missing = max(width - image.width, 0), max(height - image.height, 0)
    if any(missing):
        larger = Image.new(image.mode, (image.width + missing[0], image.height + missing[1]), _colour(fill, image))
        larger.paste(image, (missing[0] // 2, missing[1] // 2))
        image = larger
    left, top = round((image.width - width) / 2), round((image.height - height) / 2)
    return image.crop((left, top, left + width, top + height))


def _colour(fill: Any, image: Image.Image) -> Any:
    bands = len(image.getbands())
    values = fill if isinstance(fill, tuple) else (fill,) * bands
    return values[0] if bands == 1 else values
