"""Image classification as the engine sees it: data, model, loss and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from timm.data import Mixup, resolve_data_config
from torch import Tensor, nn

from ..data import BatchSource, Digits, Images, cifar, folder, transforms
from ..data.batches import Batch
from ..models import Diagnosis, create_model, diagnose, load_checkpoint, model_names, save
from ..support.names import unknown
from .config import Config, DataConfig
from .evaluation import Evaluation
from .metrics import METRICS, ClassificationMeter

BATCH_SIZE = 128
"""Images of a forward pass of `tustin eval`."""


class Classification:
    """The task of a config; it implements `engine.Task`."""

    primary = METRICS["top1"]

    def __init__(self, config: Config) -> None:
        train, held_out = open_data(config.data, training=True), open_data(config.data, training=False)
        self.class_names = train.classes
        self.model = model_of(config, len(self.class_names))
        facts = resolve_data_config({"crop_pct": config.data.crop_pct}, model=self.model)
        self.model.pretrained_cfg["crop_pct"] = facts["crop_pct"]  # so that checkpoints say how images are prepared
        self.train_data = _for_training(train, config, facts)
        self.eval_data = for_evaluation(held_out, config.data, facts)
        augment, self.smoothing = config.augment, config.optim.smoothing
        self.mixup: Mixup | None = None
        if augment.mixup or augment.cutmix:
            self.mixup = Mixup(
                augment.mixup, augment.cutmix, label_smoothing=self.smoothing, num_classes=len(self.class_names)
            )

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        images, targets = batch["images"], batch["labels"]
        if self.mixup:  # its targets are smooth already
            if len(images) % 2:
                raise ValueError(
                    f"mixup and cutmix mix pairs, so that a forward pass needs an even number of images, not "
                    f"{len(images)}: change optim.batch_size or optim.accumulate"
                )
            images, targets = self.mixup(images, targets)
            return nn.functional.cross_entropy(model(images), targets)
        return nn.functional.cross_entropy(model(images), targets, label_smoothing=self.smoothing)

    def predict(self, model: nn.Module, batch: Batch) -> Tensor:
        logits: Tensor = model(batch["images"])
        return logits

    def meter(self) -> ClassificationMeter:
        return ClassificationMeter()

    def diagnose(self, model: nn.Module, batch: Batch) -> Diagnosis:
        return diagnose(model, batch["images"])

    def save(self, model: nn.Module, path: Path, metadata: Mapping[str, Any]) -> None:
        save(model, path, class_names=self.class_names, metadata=metadata)


def open_data(data: DataConfig, training: bool) -> Digits | Images:
    """One half of the data that the settings name."""
    images = Digits(training) if data.name == "digits" else _open_files(data, training)
    if data.num_classes not in (None, len(images.classes)):
        where = data.name if data.path is None else repr(data.path)
        raise ValueError(f"{where} has {len(images.classes)} classes, data.num_classes is {data.num_classes}")
    return images


def _open_files(data: DataConfig, training: bool) -> Images:
    if data.path is None:
        raise ValueError(f"data.path is missing: --data.path must say where the data are ({data.name})")
    if data.name == "folder":
        return folder(data.path, training)
    if not data.name.startswith("cifar"):
        raise ValueError(f"classification needs data.name digits, cifar10, cifar100 or folder, got {data.name!r}")
    return cifar(data.name, data.path, training, data.download)


def evaluation_of(model: Any, data: DataConfig, settings: Mapping[str, Any]) -> Evaluation:
    """What `tustin eval` needs; no setting of the training matters."""
    images = open_data(data, training=False)
    source = for_evaluation(images, data, resolve_data_config({}, model=model))
    return Evaluation(source, images.classes, lambda model, batch: model(batch["images"]), ClassificationMeter())


def for_evaluation(images: Digits | Images, data: DataConfig, facts: dict[str, Any]) -> BatchSource:
    """The held-out images, prepared as the model expects them."""
    if isinstance(images, Digits):
        return images
    prepare = transforms.for_evaluation(facts)
    return images.prepared(prepare, facts["input_size"][0], data.skip_corrupt, data.in_memory)


def _for_training(images: Digits | Images, config: Config, facts: dict[str, Any]) -> BatchSource:
    augment, data = config.augment, config.data
    if isinstance(images, Digits):
        return Digits(training=True, shift=augment.shift)
    prepare = transforms.for_training(
        facts, augment.crop, augment.flip, augment.color_jitter, augment.auto, augment.erase
    )
    return images.prepared(prepare, facts["input_size"][0], data.skip_corrupt, data.in_memory)


def model_of(config: Config, num_classes: int) -> Any:
    """The Vision Mamba of the settings, with the weights they name, and a head for so many classes or, for 0, none."""
    settings = config.model
    if settings.name not in model_names():  # others in timm's registry have no discretization
        raise ValueError(unknown("model", settings.name, model_names()))
    arguments = {"num_classes": num_classes, "discretization": settings.discretization, **settings.args}
    if settings.img_size is not None:
        arguments["img_size"] = settings.img_size
    if settings.drop_path_rate:
        arguments["drop_path_rate"] = settings.drop_path_rate
    torch.manual_seed(config.seed)
    model = create_model(settings.name, **arguments)
    if settings.weights is not None:
        load_checkpoint(model, settings.weights, allow_other_discretization=settings.allow_other_discretization)
    return model
