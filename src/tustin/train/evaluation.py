"""A checkpoint measured on held-out images: what `tustin eval` does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from accelerate.utils import send_to_device
from timm.data import resolve_data_config

from ..data.batches import evaluation_batches
from ..models import describe, load
from .classification import for_evaluation, open_data
from .config import DataConfig
from .metrics import ClassificationMeter
from .record import environment


def evaluate_checkpoint(
    path: str | Path,
    data_name: str | None = None,
    data_path: str | None = None,
    skip_corrupt: bool = False,
    batch_size: int = 128,
    workers: int = 0,
) -> dict[str, Any]:
    """Metrics of a checkpoint on the held-out half of the data, by default those that it was trained on."""
    told, model = describe(path), load(path)
    trained_on = told["metadata"].get("config", {})
    name: Any = data_name or ("folder" if data_path else trained_on.get("data.name", "folder"))
    data = DataConfig(name=name, path=data_path or trained_on.get("data.path"), skip_corrupt=skip_corrupt)
    images = open_data(data, training=False)
    if len(images.classes) != model.num_classes:
        raise ValueError(f"the data have {len(images.classes)} classes, the model of {str(path)!r} {model.num_classes}")
    if told["class_names"] is not None and sorted(told["class_names"]) == sorted(images.classes) != told["class_names"]:
        raise ValueError(f"the classes of the data are those of {str(path)!r} in another order")
    source = for_evaluation(images, data, resolve_data_config({}, model=model))
    device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    model.to(device)
    meter = ClassificationMeter()
    with torch.no_grad():
        for batch in evaluation_batches(source, batch_size, workers=workers):
            batch = send_to_device(batch, device)
            meter.update(model(batch["images"]), batch)
    return {
        "checkpoint": str(path),
        "discretization": told["discretization"],
        "data": {"name": data.name, "path": data.path},
        "samples": meter.samples,
        "skipped": len(source) - meter.samples,
        "metrics": meter.result(lambda parts: parts),
        "environment": environment(device, told["discretization"]),
    }
