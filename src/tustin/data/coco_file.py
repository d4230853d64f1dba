"""A file of COCO's annotations, checked entry by entry: it may come from any tool, and is handed on to C++."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, TypeAlias

from ..support.ranges import Range, check

__all__ = ["read_annotations"]

Id: TypeAlias = Annotated[int, Range(0, 2**63 - 1)]
Side: TypeAlias = Annotated[int, Range(1, 2**16)]
Place: TypeAlias = Annotated[float, Range(-(2**24), 2**24)]


@dataclass
class Image:
    """An entry of "images"."""

    id: Id
    file_name: str
    height: Side
    width: Side


@dataclass
class Annotation:
    """An entry of "annotations"; what its segmentation must be is said by `rle.check`."""

    id: Id
    image_id: Id
    category_id: Id
    bbox: tuple[Place, Place, Place, Place]
    segmentation: Any
    area: Annotated[float, Range(0, 2**48)] = 0
    iscrowd: Annotated[int, Range(0, 1)] = 0


@dataclass
class Category:
    """An entry of "categories"."""

    id: Id
    name: str


ENTRIES: dict[str, Any] = {"images": Image, "annotations": Annotation, "categories": Category}
OPTIONAL = ("area", "iscrowd")


def read_annotations(file: Path) -> dict[str, Any]:
    """The three lists of a file, with those keys of their entries that are used here, and no others."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise ValueError(f"{str(file)!r} is not JSON: {reason}") from error
    lists: dict[str, Any] = {}
    for name, kind in ENTRIES.items():
        entries = content.get(name) if isinstance(content, dict) else None
        if not isinstance(entries, list):
            raise ValueError(f"{str(file)!r} has no list {name!r}")
        lists[name] = [
            _checked(kind, entry, f"entry {i} of {name!r} in {str(file)!r}") for i, entry in enumerate(entries)
        ]
        _insist_on_own_ids(lists[name], name, file)
    for number, image in enumerate(lists["images"]):
        place = PurePosixPath(image["file_name"].replace("\\", "/"))
        if not image["file_name"] or "\0" in image["file_name"] or place.is_absolute() or ".." in place.parts:
            told = f"entry {number} of 'images' in {str(file)!r}"
            raise ValueError(f"{told}: file_name must stay in the folder of the images, got {image['file_name']!r}")
    return lists


def _checked(kind: Any, entry: Any, where: str) -> dict[str, Any]:
    if not isinstance(entry, Mapping):
        raise ValueError(f"{where} must be a mapping, got {entry!r}"[:300])
    names = [field.name for field in fields(kind)]
    for name in names:
        if name not in entry and name not in OPTIONAL:
            raise ValueError(f"{where} has no {name!r}: {entry}"[:300])
    used = {name: entry[name] for name in names if name in entry}
    try:
        check(kind, used)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    return used


def _insist_on_own_ids(entries: list[dict[str, Any]], name: str, file: Path) -> None:
    seen: dict[int, int] = {}
    for number, entry in enumerate(entries):
        if (first := seen.setdefault(entry["id"], number)) != number:
            raise ValueError(
                f"entries {first} and {number} of {name!r} in {str(file)!r} have the same id {entry['id']}"
            )
