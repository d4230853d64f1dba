"""What the pictures of `tustin predict` share: colours that can be told apart, and files written whole."""

from __future__ import annotations

import colorsys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ..support.files import replacing

__all__ = ["colours", "write_png"]


def colours(number: int, black: int = 0) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """(number, 3): colours of which neighbours differ, because hues a golden section apart do, and one black."""
    hues = [(index * 0.6180339887) % 1 for index in range(number)]
    strengths = [(0.9, 0.95), (0.55, 0.9), (0.85, 0.65)]
    chosen = [colorsys.hsv_to_rgb(hue, *strengths[index % 3]) for index, hue in enumerate(hues)]
    chosen[black : black + 1] = [(0.0, 0.0, 0.0)] if black < number else []
    return (255 * np.array(chosen)).round().astype(np.uint8)


def write_png(path: Path, picture: Image.Image) -> None:
    with replacing(path) as file:
        picture.save(file, format="PNG")
