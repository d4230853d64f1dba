"""Image folders with something to learn in them: each class has its colour."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

COLOURS = {"cat": (200, 60, 60), "dog": (60, 60, 200)}


def write_images(root: Path, train: int, val: int, size: tuple[int, int] = (24, 20)) -> Path:
    """`root`/train and `root`/val with so many images of each class, width and height as in `size`."""
    random = np.random.default_rng(0)
    for part, count in (("train", train), ("val", val)):
        for name, colour in COLOURS.items():
            folder = root / part / name
            folder.mkdir(parents=True)
            for i in range(count):
                noise = random.integers(-50, 50, (size[1], size[0], 3))
                Image.fromarray((np.array(colour) + noise).clip(0, 255).astype(np.uint8)).save(folder / f"{i}.png")
    return root
