"""Predictions of a checkpoint for images: a module for each task, and what they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import chain, count
from pathlib import Path
from typing import Any

__all__ = ["PREDICTORS", "Wishes", "find_images", "load", "names_for", "predictor"]

PREDICTORS = {"classification": "classes", "segmentation": "masks", "detection": "boxes"}
"""The module of each task: `predict` makes the results, `render` a table of them, `facts` what --json prints."""

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp")
"""The endings of images in a folder. A file that is given by name may have any ending."""


@dataclass(frozen=True)
class Wishes:
    """Options of a prediction. Each task uses only some of them."""

    checkpoint: Path
    """Path of the model, for messages."""
    out: Path | None
    """The folder for pictures."""
    top: int
    """Largest number of classes per image."""
    score: float
    """Lowest score of an object that is drawn."""
    batch_size: int


def predictor(task: str) -> Any:
    """The module that predicts for a task, such as `tustin.predict.classes`."""
    return import_module(f".{PREDICTORS[task]}", __name__)


def load(path: Path, task: str | None = None) -> tuple[str, str, Any]:
    """Load a checkpoint or an ONNX file to predict with: returns its task, its rule and the model."""
    from .onnx_file import is_onnx, open_onnx

    def insist_on(found: str) -> None:
        if task not in (None, found):
            raise ValueError(f"{path} is a model for {found}, not for {task}")

    if is_onnx(path):
        exported = open_onnx(path)
        insist_on(exported.task)
        return exported.task, exported.discretization, exported
    from .. import models

    told = models.describe(path)
    insist_on(told["task"])
    model = models.load(path)
    from .checkpoint_file import CheckpointClassifier, CheckpointSegmenter

    if told["task"] == "classification":
        model = CheckpointClassifier(model)
    elif told["task"] == "segmentation":
        model = CheckpointSegmenter(model, told)
    return told["task"], told["discretization"], model


def find_images(given: Sequence[Path]) -> list[Path]:
    """All images among `given`: files as they are, folders with all their subfolders."""
    found = []
    for path in given:
        if path.is_dir():
            inside = sorted(file for file in path.rglob("*") if file.suffix.lower() in ENDINGS and file.is_file())
            if not inside:
                raise ValueError(f"there is no image in the folder {path}: none ends in {' '.join(ENDINGS)}")
            found += inside
        else:
            found.append(path)
    return found


def names_for(paths: Sequence[Path], out: Path, endings: Sequence[str]) -> list[str]:
    """A unique file name in `out` for the results of each image, without an ending.

    It is the name of the image; images of the same name get a number. The names also differ on file systems that
    ignore case. With any of `endings`, no name is that of an input image.
    """
    stems = Counter(path.stem.casefold() for path in paths)
    read = {path.resolve() for path in paths}
    names: list[str] = []
    taken: set[str] = set()
    for path in paths:
        own = [path.stem] if stems[path.stem.casefold()] == 1 else []
        numbered = (f"{path.stem}-{number}" for number in count(1))
        for name in chain(own, (name for name in numbered if name.casefold() not in stems)):
            overwrites = any((out / f"{name}{ending}").resolve() in read for ending in endings)
            if name.casefold() not in taken and not overwrites:
                break
        taken.add(name.casefold())
        names.append(name)
    return names
