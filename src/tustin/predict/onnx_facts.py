"""What a file of `tustin export` says about itself in its metadata, which may come from a stranger."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from ..support.names import unknown
from ..support.pictures import insist_on_pixels
from ..support.ranges import Range, check

__all__ = ["read_facts"]

Side = Annotated[int, Range(1, 2**16)]
_TEXTS = ("tustin", "task", "architecture", "discretization", "interpolation", "crop_mode", "window")


@dataclass
class Facts:
    """Of every model."""

    discretization: str
    num_classes: Annotated[int, Range(0, 2**24)]
    class_names: Sequence[str] | None
    input_size: Sequence[Side]
    dynamic_size: bool
    mean: Sequence[Annotated[float, Range(-1000, 1000)]]
    std: Sequence[Annotated[float, Range(0, 1000, above=True)]]


@dataclass
class ClassifierFacts(Facts):
    """How an image is cropped."""

    interpolation: Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]
    crop_pct: Annotated[float, Range(0.05, 1)]
    crop_mode: Literal["center", "squash", "border"]


@dataclass
class SegmenterFacts(Facts):
    """How an image is resized and seen, and how masks are written; see `SegmentationConfig`."""

    num_classes: Annotated[int, Range(1, 2**15 - 1)]
    long_side: Side
    short_side: Side
    window: Literal["whole", "slide"]
    window_stride: Side
    unlabelled: Annotated[int, Range(0, 2**16 - 1)]


KINDS: dict[str, type[Facts]] = {"classification": ClassifierFacts, "segmentation": SegmenterFacts}


def read_facts(path: Path, told: dict[str, str]) -> tuple[str, dict[str, Any]]:
    """The task and the checked facts in the metadata of a file."""
    if "tustin" not in told or "task" not in told:
        raise ValueError(f"{path} does not say how images are prepared: it was not written by 'tustin export'")
    task = told["task"]
    try:
        if task not in KINDS:
            raise ValueError(unknown("task", task, list(KINDS)))
        facts: dict[str, Any] = {name: value if name in _TEXTS else json.loads(value) for name, value in told.items()}
        wanted = KINDS[task].__dataclass_fields__
        if missing := [name for name in wanted if name not in facts]:
            raise ValueError(f"it does not say {missing[0]}")
        facts = {name: facts[name] for name in wanted}
        check(KINDS[task], facts)
        if len(facts["input_size"]) != 3:
            raise ValueError(f"input_size must be channels, height and width, got {facts['input_size']}")
        insist_on_pixels(*(side / facts.get("crop_pct", 1) for side in facts["input_size"][1:]))
        for name in ("mean", "std"):
            if len(facts[name]) not in (1, facts["input_size"][0]):
                raise ValueError(f"{name} has {len(facts[name])} values for {facts['input_size'][0]} channels")
        if facts["class_names"] is not None and len(facts["class_names"]) != facts["num_classes"]:
            raise ValueError(f"it has {len(facts['class_names'])} class names for {facts['num_classes']} classes")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is refused because of its metadata: {error}") from error
    return task, facts
