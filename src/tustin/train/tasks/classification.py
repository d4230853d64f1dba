"""Image classification: data, model, loss and metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from timm.data import Mixup, resolve_data_config
from torch import Tensor, nn

from ...data import BatchSource, Digits, Images, cifar, folder, transforms
from ...data.batches import Batch
from ...models import Diagnosis, VisionMamba, diagnose, save
from ..metrics import METRICS, Gather
from .base import DataSet, Evaluation, backbone_of, open_data

if TYPE_CHECKING:
    from ..config import Config, DataConfig

__all__ = ["DATA", "NAME", "Classification", "ClassificationMeter", "evaluation_of"]

NAME = VisionMamba.task


def _cifar(data: DataConfig, training: bool) -> Images:
    assert data.path is not None
    return cifar(data.name, data.path, training, data.download)


def _folder(data: DataConfig, training: bool) -> Images:
    assert data.path is not None
    return folder(data.path, training)


_MIXED = {"mixup", "cutmix", "repeats"}
_PHOTOS = {*_MIXED, "crop", "flip", "color_jitter", "auto", "erase"}
_CIFAR = {"path", "num_classes", "seed", "workers", "crop_pct", "download"}
_FOLDER = {"path", "num_classes", "seed", "workers", "skip_corrupt", "crop_pct", "in_memory", "cache"}
DATA = {
    "digits": DataSet(lambda data, training: Digits(training), {"num_classes", "seed", "workers"}, {*_MIXED, "shift"}),
    "cifar10": DataSet(_cifar, _CIFAR, _PHOTOS, "the data are (cifar10)"),
    "cifar100": DataSet(_cifar, _CIFAR, _PHOTOS, "the data are (cifar100)"),
    "folder": DataSet(_folder, _FOLDER, _PHOTOS, "the data are (folder)"),
}


class Classification:
    """The task of a config; it implements `Task`."""

    metrics = ("top1", "top5", "loss")
    primary = METRICS[metrics[0]]

    def __init__(self, config: Config) -> None:
        train, held_out = (open_data(NAME, DATA, config.data, training) for training in (True, False))
        self.class_names = train.classes
        self.model = backbone_of(config, len(self.class_names))
        facts = resolve_data_config({"crop_pct": config.data.crop_pct}, model=self.model)
        self.model.pretrained_cfg["crop_pct"] = facts["crop_pct"]  # so that checkpoints say how images are prepared
        self.train_data = _for_training(train, config, facts)
        self.evaluation = evaluation_of(self.model, held_out, config.data)
        augment, self.smoothing = config.augment, config.optim.smoothing
        self.mixup: Mixup | None = None
        if augment.mixup or augment.cutmix:
            self.mixup = Mixup(
                augment.mixup, augment.cutmix, label_smoothing=self.smoothing, num_classes=len(self.class_names)
            )

    def notes(self) -> Iterable[str]:
        return ()

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        images, targets = batch["images"], batch["labels"]
        if self.mixup:  # its targets are smooth already
            if len(images) % 2:
                raise ValueError(
                    f"mixup and cutmix mix pairs of images, so a forward pass needs an even number of images, not "
                    f"{len(images)}: change optim.batch_size or optim.accumulate"
                )
            images, targets = self.mixup(images, targets)
        smoothing = 0.0 if self.mixup else self.smoothing
        return {"classes": nn.functional.cross_entropy(model(images), targets, label_smoothing=smoothing)}

    def diagnose(self, model: nn.Module, batch: Batch) -> Diagnosis:
        return diagnose(model, batch["images"])

    def save(self, model: nn.Module, path: Path, metadata: Mapping[str, Any]) -> None:
        save(model, path, class_names=self.class_names, metadata=metadata)


class ClassificationMeter:
    """Top-1 and top-5 accuracy in percent, and the mean cross-entropy."""

    def __init__(self) -> None:
        self.correct1 = self.correct5 = self.samples = 0
        self.loss = 0.0

    def update(self, output: Tensor, batch: Batch) -> None:
        labels: Tensor = batch["labels"]
        logits = output.float()
        hits = logits.topk(min(5, logits.shape[1])).indices == labels[:, None]
        self.correct1 += int(hits[:, 0].sum())
        self.correct5 += int(hits.sum())
        self.samples += len(labels)
        self.loss += float(torch.nn.functional.cross_entropy(logits, labels, reduction="sum"))

    def result(self, gather: Gather) -> dict[str, float]:
        parts = gather([(self.correct1, self.correct5, self.samples, self.loss)])
        correct1, correct5, samples, loss = (sum(numbers) for numbers in zip(*parts, strict=True))
        return {"top1": 100 * correct1 / samples, "top5": 100 * correct5 / samples, "loss": loss / samples}


def evaluation_of(model: Any, images: Digits | Images, data: DataConfig, settings: None = None) -> Evaluation:
    """Of a model on images, which are prepared as it expects them."""
    source: BatchSource = images
    if isinstance(images, Images):
        facts = resolve_data_config({}, model=model)
        prepare = transforms.for_evaluation_in_batches(facts)
        source = images.prepared(prepare, facts["input_size"][0], data.skip_corrupt, data.in_memory, data.cache)
    return Evaluation(source, images.classes, lambda model, batch: model(batch["images"]), ClassificationMeter)


def _for_training(images: Digits | Images, config: Config, facts: dict[str, Any]) -> BatchSource:
    augment, data = config.augment, config.data
    if isinstance(images, Digits):
        return Digits(training=True, shift=augment.shift)
    prepare = transforms.for_training(
        facts, augment.crop, augment.flip, augment.color_jitter, augment.auto, augment.erase
    )
    return images.prepared(prepare, facts["input_size"][0], data.skip_corrupt, data.in_memory, data.cache)
