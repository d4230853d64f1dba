"""A small folder of images and index masks: a disc and a square on a dark ground, and a border without a class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

CLASSES = ["ground", "disc", "square"]
COLOURS = (30, 30, 40), (210, 70, 60), (60, 90, 220)


def write_masked_shapes(root: Path, train: int, val: int, size: tuple[int, int] = (32, 32), seed: int = 0) -> Path:
    """So many pairs of width and height `size` in the layout of ADE20K; validation begins with the training images."""
    for part, count in (("training", train), ("validation", val)):
        random = np.random.default_rng(seed)
        for kind in ("images", "annotations"):
            (root / kind / part).mkdir(parents=True)
        for number in range(count):
            image, mask = _pair(random, size)
            image.save(root / "images" / part / f"{number}.png")
            mask.save(root / "annotations" / part / f"{number}.png")
    (root / "classes.txt").write_text("\n".join(CLASSES) + "\n")
    return root


def _pair(random: np.random.Generator, size: tuple[int, int]) -> tuple[Image.Image, Image.Image]:
    image, mask = Image.new("RGB", size, COLOURS[0]), Image.new("L", size, 1)
    radius = min(size) / 5
    centres = random.permutation([0.28, 0.72])
    for kind, across in enumerate(centres, start=1):
        x, y = across * size[0], random.uniform(0.3, 0.7) * size[1]
        box = x - radius, y - radius, x + radius, y + radius
        for picture, colour in ((image, COLOURS[kind]), (mask, kind + 1)):
            draw = ImageDraw.Draw(picture)
            (draw.ellipse if kind == 1 else draw.rectangle)(box, fill=colour)
    ImageDraw.Draw(mask).rectangle((0, 0, size[0] - 1, size[1] - 1), outline=0)  # the border has no class
    noise = random.normal(0, 12, (size[1], size[0], 3))
    return Image.fromarray((np.asarray(image) + noise).clip(0, 255).astype(np.uint8)), mask
