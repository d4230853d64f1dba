"""Masks as COCO writes them: polygons, or the lengths of runs of equal pixels, column by column."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["check", "coco_library", "decode", "encode"]


def coco_library() -> Any:
    """faster-coco-eval, which comes with the extra `detection`."""
    try:
        import faster_coco_eval
    except ImportError as error:
        raise RuntimeError("COCO's masks and metrics need faster-coco-eval: pip install 'tustin[detection]'") from error
    return faster_coco_eval


def decode(segmentation: Any, height: int, width: int) -> Tensor:
    """The mask (height, width) of zeros and ones that polygons or runs describe; what is neither is a ValueError."""
    check(segmentation, height, width)
    library = coco_library().mask
    if isinstance(segmentation, list):
        runs = library.merge(library.frPyObjects(segmentation, height, width))
    elif isinstance(segmentation["counts"], list):
        runs = library.frPyObjects(segmentation, height, width)
    else:
        runs = segmentation
    return torch.from_numpy(library.decode(runs))


def encode(mask: Tensor) -> dict[str, Any]:
    """Compressed runs of a mask (height, width), in plain values."""
    runs = coco_library().mask.encode(np.asfortranarray(mask.cpu().numpy().astype(np.uint8)))
    return {"size": [int(side) for side in runs["size"]], "counts": _text(runs["counts"])}


def check(segmentation: Any, height: int, width: int) -> None:
    """Raise unless it describes a mask of this size: the library is C++ and trusts what it gets."""
    if isinstance(segmentation, list):
        if not segmentation or not all(_is_polygon(polygon) for polygon in segmentation):
            raise ValueError("its segmentation is not a list of polygons of at least three points")
        side = max(height, width)
        if any(not -side <= value <= 2 * side for polygon in segmentation for value in polygon):
            raise ValueError(f"its segmentation is far outside its image of {width} x {height}")
        return
    if not isinstance(segmentation, dict) or not {"size", "counts"} <= segmentation.keys():
        raise ValueError("its segmentation is neither polygons nor runs with 'size' and 'counts'")
    if segmentation["size"] != [height, width]:
        raise ValueError(f"its mask has the size {segmentation['size']}, but its image {[height, width]}")
    counts = segmentation["counts"]
    lengths = counts if isinstance(counts, list) else _lengths(_text(counts))
    if not all(type(length) is int and length >= 0 for length in lengths) or sum(lengths) != height * width:
        raise ValueError(f"the runs of its mask do not add up to {height} x {width} pixels")


def _is_polygon(points: Any) -> bool:
    return (
        isinstance(points, list)
        and len(points) >= 6
        and len(points) % 2 == 0
        and all(type(value) in (int, float) and abs(value) < math.inf for value in points)
    )


def _text(counts: Any) -> str:
    return counts.decode("ascii") if isinstance(counts, bytes) else str(counts)


def _lengths(text: str) -> list[int]:
    """The runs in compressed text: five bits a letter, low ones first, from the fourth on as the change to two before.

    Text that is no such thing has none.
    """
    lengths: list[int] = []
    value = shift = 0
    for letter in text:
        bits = ord(letter) - 48
        if not 0 <= bits < 64 or shift > 60:  # more would be no length of a run
            return []
        value |= (bits & 31) << shift
        shift += 5
        if bits & 32:
            continue
        if bits & 16:
            value -= 1 << shift
        lengths.append(value + (lengths[-2] if len(lengths) > 2 else 0))
        value = shift = 0
    return [] if shift else lengths
