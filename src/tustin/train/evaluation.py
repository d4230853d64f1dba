"""A checkpoint measured on held-out images: what `tustin eval` does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ..models import VisionMamba, describe, load
from ..support.ranges import check
from .config import DataConfig
from .record import environment
from .tasks import TASKS, TaskKind, segmentation
from .tasks.segmentation import SegmentationConfig

__all__ = ["evaluate_checkpoint", "reading_of_masks", "settings_in"]


def evaluate_checkpoint(
    path: str | Path,
    data_name: str | None = None,
    data_path: str | None = None,
    skip_corrupt: bool = False,
    batch_size: int | None = None,
    workers: int = 0,
    settings: Mapping[str, Any] | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Metrics of a checkpoint on held-out data; by default on the dataset of its training.

    `settings` replace settings of the training, such as {"segmentation.window": "slide"}; `arguments` replace
    arguments of the model, such as {"delta_scale": 0.25}.
    """
    told, arguments = describe(path), dict(arguments or {})
    if "stride" in arguments and told["task"] != VisionMamba.task:
        raise ValueError(
            f"the stride can be changed only for {VisionMamba.task}, but {str(path)!r} is a model for {told['task']}"
        )
    model = load(path, **arguments)
    kind, trained_with = TASKS[told["task"]], settings_in(told)
    data = _data(kind, trained_with, data_name, data_path, skip_corrupt)
    images, own = kind.open_data(data, training=False), kind.own_settings({**trained_with, **(settings or {})})
    evaluation = kind.evaluation_of(model, images, data, own)
    _insist_on_classes(path, told["class_names"], model.num_classes, evaluation.classes)
    device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    metrics, samples = evaluation.run(model.to(device), device, batch_size or kind.batch_size, workers)
    return {
        "checkpoint": str(path),
        "discretization": told["discretization"],
        "arguments": arguments,
        "data": {"name": data.name, "path": data.path},
        "samples": samples,
        "skipped": len(evaluation.data) - samples,
        "metrics": metrics,
        "environment": environment(device, told["discretization"]),
    }


def settings_in(told: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the training, by their dotted names, if the file says so."""
    settings = told["metadata"].get("config")
    return settings if isinstance(settings, dict) else {}


def reading_of_masks(trained_with: Mapping[str, Any]) -> tuple[SegmentationConfig, int]:
    """How a segmenter with these settings reads an image, and the value that its masks have where there is no class."""
    own, unlabelled = TASKS[segmentation.NAME].own_settings(trained_with), trained_with.get("data.unlabelled", 0)
    check(DataConfig, {"unlabelled": unlabelled}, "data.")
    return own, unlabelled


def _insist_on_classes(path: str | Path, names: list[str] | None, number: int, classes: list[str]) -> None:
    """The data must have as many classes as the model, and if they have the same names, in the same order."""
    if len(classes) != number:
        raise ValueError(f"the dataset has {len(classes)} classes, but the model in {str(path)!r} has {number}")
    if names is not None and names != classes and sorted(names) == sorted(classes):
        raise ValueError(f"the dataset has the same classes as {str(path)!r}, but in another order")


def _data(
    kind: TaskKind, trained_with: Mapping[str, Any], name: str | None, path: str | None, skip_corrupt: bool
) -> DataConfig:
    known = trained_with.get("data.name", kind.default_data)
    chosen: Any = name or (kind.data_at_path if path and kind.data_at_path else known)
    values = {
        "name": chosen,
        "path": path or trained_with.get("data.path"),
        "skip_corrupt": skip_corrupt,
        "download": path is not None,  # what only a file asks for is not fetched, nor written
        "unlabelled": trained_with.get("data.unlabelled", 0),
    }
    check(DataConfig, values, "data.")
    return DataConfig(**values)
