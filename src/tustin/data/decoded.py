"""Decoded images in a file that is mapped into memory, so that many runs decode them once and share the pages.

FOLDER/KEY.json       which files they are of, and the sums of the two others; written last
FOLDER/KEY.pixels.npy   all pixels, one image after the other
FOLDER/KEY.shapes.npy   height and width of each; 0 where the file could not be read

KEY stands for the names, sizes and times of the files and the mode: where one of them changes, they are decoded again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ..support.files import digest, read_json, remove_unfinished, replacing, write_text
from .pictures import UnreadableError, read_image

__all__ = ["Pixels", "decode", "mapped"]

Pixels: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]


def decode(paths: Sequence[Path], mode: str) -> list[Path | Pixels]:
    """Every image as an array; a file that cannot be read stays a path, and is told when it is used."""
    return [_decoded(path, mode) for path in paths]


def mapped(paths: Sequence[Path], mode: str, folder: str | Path) -> list[Path | Pixels]:
    """The same, from the files in `folder`, which are written if they are missing, damaged or of other images."""
    folder = Path(folder)
    key = _key(paths, mode)
    with _locked(folder):
        if not _is_whole(folder, key):
            _write(folder, key, decode(paths, mode))
    channels = len(mode)
    shapes = np.load(_file(folder, key, "shapes"), allow_pickle=False)
    pixels = np.asarray(np.load(_file(folder, key, "pixels"), mmap_mode="r", allow_pickle=False))
    ends = np.cumsum(shapes[:, 0] * shapes[:, 1] * channels).tolist()
    images: list[Path | Pixels] = []
    for path, (height, width), begin, end in zip(paths, shapes.tolist(), [0, *ends], ends, strict=False):
        shape = (height, width, channels) if channels > 1 else (height, width)
        images.append(pixels[begin:end].reshape(shape) if end > begin else path)
    return images


def _decoded(path: Path, mode: str) -> Path | Pixels:
    try:
        return np.asarray(read_image(path, mode))
    except UnreadableError:
        return path


def _key(paths: Sequence[Path], mode: str) -> str:
    seen = hashlib.sha256(mode.encode())
    for path in paths:
        about = path.stat()
        seen.update(f"{path.absolute()}\0{about.st_size}\0{about.st_mtime_ns}\n".encode())
    return seen.hexdigest()[:32]


def _file(folder: Path, key: str, part: str) -> Path:
    return folder / f"{key}.{part}.npy"


def _is_whole(folder: Path, key: str) -> bool:
    try:
        sums = read_json(folder / f"{key}.json")
        return bool(sums == {part: digest(_file(folder, key, part)) for part in ("pixels", "shapes")})
    except (OSError, ValueError):
        return False


def _write(folder: Path, key: str, images: Sequence[Path | Pixels]) -> None:
    shapes = [(0, 0) if isinstance(image, Path) else image.shape[:2] for image in images]
    parts = {
        "pixels": np.concatenate([image.ravel() for image in images if not isinstance(image, Path)] or [_NOTHING]),
        "shapes": np.array(shapes, dtype=np.int64),
    }
    for part, array in parts.items():
        with replacing(_file(folder, key, part)) as file:
            np.save(file, array, allow_pickle=False)
    sums = {part: digest(_file(folder, key, part)) for part in parts}
    write_text(folder / f"{key}.json", json.dumps(sums) + "\n")


_NOTHING: Pixels = np.zeros(0, np.uint8)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Be the only process that decodes into this folder; others wait for it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        remove_unfinished(folder)
        yield
