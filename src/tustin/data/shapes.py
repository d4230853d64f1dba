"""Small sets to try detection and segmentation on: coloured shapes on a dark ground, in COCO's layout or as masks."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw

from .rle import encode

CATEGORIES = [{"id": 3, "name": "square"}, {"id": 7, "name": "disc"}, {"id": 11, "name": "triangle"}]
"""With numbers that leave gaps, as COCO's do."""
COLOURS = ((220, 60, 60), (60, 200, 60), (70, 90, 230))


def write_shapes(path: str | Path, train: int, val: int, side: int = 64, seed: int = 0) -> Path:
    """Write a small detection dataset in COCO's layout: `train` and `val` images of up to three shapes.

    Every eighth image has no shape.
    """
    root = Path(path)
    random = np.random.default_rng(seed)
    (root / "annotations").mkdir(parents=True)
    for part, count in (("train2017", train), ("val2017", val)):
        (root / part).mkdir()
        images: list[dict[str, Any]] = []
        annotations: list[dict[str, Any]] = []
        for number in range(1, count + 1):
            picture = _ground(random, side)
            for outline, kind in [] if number % 8 == 0 else _layout(random, side):
                ImageDraw.Draw(picture).polygon(outline, fill=COLOURS[kind])
                annotations.append(_annotation(outline, kind, number, len(annotations) + 1, side))
            name = f"{number:012d}.png"
            picture.save(root / part / name)
            images.append({"id": number, "file_name": name, "width": side, "height": side})
        content = {"images": images, "annotations": annotations, "categories": CATEGORIES}
        (root / "annotations" / f"instances_{part}.json").write_text(json.dumps(content))
    return root


def write_masked_shapes(path: str | Path, train: int, val: int, side: int = 64, seed: int = 0) -> Path:
    """Write a small segmentation dataset: images of shapes, each with a mask of classes.

    Class 1 is the ground, 2 to 4 are the shapes; 0, which means unlabelled, does not occur.
    """
    root = Path(path)
    random = np.random.default_rng(seed)
    for part, count in (("training", train), ("validation", val)):
        for kind in ("images", "annotations"):
            (root / kind / part).mkdir(parents=True)
        for number in range(1, count + 1):
            picture, mask = _ground(random, side), Image.new("L", (side, side), 1)
            for outline, kind_of_shape in _layout(random, side):
                ImageDraw.Draw(picture).polygon(outline, fill=COLOURS[kind_of_shape])
                ImageDraw.Draw(mask).polygon(outline, fill=kind_of_shape + 2)
            picture.save(root / "images" / part / f"{number}.png")
            mask.save(root / "annotations" / part / f"{number}.png")
    names = ["ground", *(str(category["name"]) for category in CATEGORIES)]
    (root / "classes.txt").write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    return root


def _ground(random: np.random.Generator, side: int) -> Image.Image:
    return Image.fromarray(random.integers(0, 50, (side, side, 3)).astype(np.uint8))


def _layout(random: np.random.Generator, side: int) -> list[tuple[list[tuple[float, float]], int]]:
    """Up to three shapes that do not touch: outline and number of the class."""
    taken: list[tuple[float, float, float]] = []
    shapes = []
    for _ in range(int(random.integers(1, 4))):
        radius = float(random.uniform(0.1, 0.2) * side)
        x, y = (float(value) for value in random.uniform(radius, side - radius, 2))
        if any(max(abs(x - a), abs(y - b)) < radius + r + 1 for a, b, r in taken):
            continue
        taken.append((x, y, radius))
        kind = int(random.integers(3))
        corners, turn = ((4, math.pi / 4), (40, 0.0), (3, -math.pi / 2))[kind]
        angles = [turn + 2 * math.pi * i / corners for i in range(corners)]
        shapes.append(([(x + radius * math.cos(a), y + radius * math.sin(a)) for a in angles], kind))
    return shapes


def _annotation(outline: list[tuple[float, float]], kind: int, image: int, number: int, side: int) -> dict[str, Any]:
    """Discs as runs, the others as polygons."""
    left, top = (min(point[i] for point in outline) for i in (0, 1))
    right, bottom = (max(point[i] for point in outline) for i in (0, 1))
    segmentation: Any = [[value for point in outline for value in point]]
    if kind == 1:
        mask = Image.new("L", (side, side))
        ImageDraw.Draw(mask).polygon(outline, fill=1)
        segmentation = encode(torch.from_numpy(np.array(mask)))
    return {
        "id": number,
        "image_id": image,
        "category_id": CATEGORIES[kind]["id"],
        "bbox": [left, top, right - left, bottom - top],
        "area": (right - left) * (bottom - top) * (1.0, math.pi / 4, 0.5)[kind],
        "segmentation": segmentation,
        "iscrowd": 0,
    }
