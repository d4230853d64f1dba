"""Object detection and instance segmentation as the engine sees it: data, model, losses and COCO's figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..data.batches import Batch
from ..data.coco import Coco, as_results, coco, large_scale_jitter
from ..models import Diagnosis, diagnose, save
from ..models.detector import Detector
from .average_precision import coco_figures
from .classification import model_of
from .config import Config, DataConfig
from .evaluation import Evaluation
from .metrics import METRICS, Gather

BATCH_SIZE = 8
"""Images that `tustin eval` loads together."""


class Detection:
    """The task of a config; it implements `engine.Task`."""

    primary = METRICS["box_ap75"]

    def __init__(self, config: Config) -> None:
        train, self.eval_data = open_data(config.data, training=True), open_data(config.data, training=False)
        if (train.classes, train.category_ids) != (self.eval_data.classes, self.eval_data.category_ids):
            raise ValueError(f"the categories of train2017 and val2017 in {config.data.path!r} differ")
        self.class_names = train.classes
        heads = asdict(config.detection)
        scale = heads.pop("min_scale"), heads.pop("max_scale")
        self.model = Detector(model_of(config, num_classes=0), train.category_ids, **heads)
        side, mean = self.model.transform.min_size[0], self.model.transform.image_mean
        self.train_data = replace(train, jitter=large_scale_jitter(side, mean, scale, config.augment.flip))

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        losses = model(batch["images"], batch["targets"])
        return torch.stack(list(losses.values())).sum()

    def predict(self, model: nn.Module, batch: Batch) -> Any:
        return model(batch["images"])

    def meter(self) -> DetectionMeter:
        return DetectionMeter(self.eval_data)

    def diagnose(self, model: nn.Module, batch: Batch) -> Diagnosis:
        assert isinstance(model, Detector)
        images, _ = model.transform(batch["images"])
        return diagnose(model.vim, images.tensors)

    def save(self, model: nn.Module, path: Path, metadata: Mapping[str, Any]) -> None:
        save(model, path, class_names=self.class_names, metadata=metadata)


class DetectionMeter:
    """COCO's twelve figures for boxes and for masks, in percent."""

    def __init__(self, data: Coco) -> None:
        self.data = data
        self.found: dict[int, list[dict[str, Any]]] = {}

    def update(self, output: list[dict[str, Tensor]], batch: Batch) -> None:
        for detections, target in zip(output, batch["targets"], strict=True):
            image = target["image_id"]
            self.found[image] = as_results(detections, image, self.data.category_ids)

    def result(self, gather: Gather) -> dict[str, Any]:
        found = dict(gather(list(self.found.items())))  # by image, so that none counts twice
        figures = coco_figures(self.data.annotations, chain.from_iterable(found.values()), found)
        if Detection.primary.name not in figures:
            raise ValueError(f"there is no object in the {len(found)} images to evaluate on")
        return figures


def evaluation_of(model: Detector, data: DataConfig, settings: Mapping[str, Any]) -> Evaluation:
    """What `tustin eval` needs; no setting of the training matters."""
    images = open_data(data, training=False)
    if images.category_ids != model.config["category_ids"]:
        raise ValueError(f"the categories in {data.path!r} have other numbers than those the model was trained on")
    return Evaluation(images, images.classes, lambda model, batch: model(batch["images"]), DetectionMeter(images))


def open_data(data: DataConfig, training: bool) -> Coco:
    """One half of the data that the settings name."""
    if data.name != "coco":
        raise ValueError(f"detection needs data.name coco, got {data.name!r}")
    if data.path is None:
        raise ValueError("data.path is missing: --data.path must say where train2017/, val2017/ and annotations/ are")
    images = coco(data.path, training, data.skip_corrupt)
    if data.num_classes not in (None, len(images.classes)):
        raise ValueError(f"{data.path!r} has {len(images.classes)} classes, data.num_classes is {data.num_classes}")
    return images
