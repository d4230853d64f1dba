"""Semantic segmentation as the engine sees it: data, model, loss and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from timm.data import resolve_data_config
from torch import Tensor, nn

from ..data.ade20k import ade20k
from ..data.batches import Batch
from ..data.mask_transforms import ForEvaluation, ForTraining
from ..data.masks import UNLABELLED, MaskedImages, masked_folder
from ..models import Diagnosis, diagnose, save
from ..models.segmenter import Segmenter
from ..support.ranges import check
from .classification import model_of
from .config import Config, DataConfig, SegmentationConfig
from .evaluation import Evaluation
from .metrics import METRICS, Gather

BATCH_SIZE = 8
"""Images that `tustin eval` loads together."""


class Segmentation:
    """The task of a config; it implements `engine.Task`."""

    primary = METRICS["miou"]

    def __init__(self, config: Config) -> None:
        self.settings, self.smoothing = config.segmentation, config.optim.smoothing
        train, held_out = open_data(config.data, training=True), open_data(config.data, training=False)
        self.class_names = train.classes
        vim = model_of(config, num_classes=0)
        self.model = Segmenter(vim, len(self.class_names), self.settings.channels)
        self.train_data = _for_training(train, config, vim)
        self.eval_data = for_evaluation(held_out, config.data, self.settings, vim)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        logits, auxiliary = model(batch["images"])
        main, extra = (self._cross_entropy(one, batch["masks"]) for one in (logits, auxiliary))
        return main + self.settings.auxiliary_weight * extra

    def _cross_entropy(self, logits: Tensor, masks: Tensor) -> Tensor:
        """The mean over the labelled pixels, 0 where there are none."""
        total = nn.functional.cross_entropy(
            logits, masks, ignore_index=UNLABELLED, label_smoothing=self.smoothing, reduction="sum"
        )
        return total / (masks != UNLABELLED).sum().clamp(min=1)

    def predict(self, model: nn.Module, batch: Batch) -> list[Tensor]:
        return segment_each(model, batch, self.settings)

    def meter(self) -> SegmentationMeter:
        return SegmentationMeter(self.class_names)

    def diagnose(self, model: nn.Module, batch: Batch) -> Diagnosis:
        assert isinstance(model, Segmenter)
        return diagnose(model.vim, batch["images"])

    def save(self, model: nn.Module, path: Path, metadata: Mapping[str, Any]) -> None:
        save(model, path, class_names=self.class_names, metadata=metadata)


class SegmentationMeter:
    """Mean intersection over union, pixel accuracy and the IoU of each class, in percent.

    Unlabelled pixels do not count. A class that neither the masks nor the model have anywhere has no IoU, and no part
    in the mean.
    """

    def __init__(self, class_names: list[str]) -> None:
        self.class_names = class_names
        self.pixels = torch.zeros(len(class_names), len(class_names), dtype=torch.int64)  # by truth and prediction

    def update(self, output: list[Tensor], batch: Batch) -> None:
        classes = len(self.class_names)
        for predicted, truth in zip(output, batch["masks"], strict=True):
            labelled = truth != UNLABELLED
            pairs = truth[labelled] * classes + predicted[labelled]
            self.pixels += pairs.bincount(minlength=classes**2).reshape(classes, classes).cpu()

    def result(self, gather: Gather) -> dict[str, Any]:
        pixels = torch.stack(gather([self.pixels])).sum(0).double()
        if not pixels.any():
            raise ValueError("no pixel of the masks to evaluate on is labelled")
        both, union = pixels.diag(), pixels.sum(0) + pixels.sum(1) - pixels.diag()
        iou = 100 * both / union  # not a number where a class is nowhere
        return {
            "miou": float(iou.nanmean()),
            "pixel_accuracy": float(100 * both.sum() / pixels.sum()),
            "class_iou": {
                name: None if value.isnan() else float(value) for name, value in zip(self.class_names, iou, strict=True)
            },
        }


def evaluation_of(model: Segmenter, data: DataConfig, settings: Mapping[str, Any]) -> Evaluation:
    """What `tustin eval` needs."""
    images, own = open_data(data, training=False), settings_of(settings)
    source = for_evaluation(images, data, own, model.vim)
    meter = SegmentationMeter(images.classes)
    return Evaluation(source, images.classes, lambda model, batch: segment_each(model, batch, own), meter)


def settings_of(settings: Mapping[str, Any]) -> SegmentationConfig:
    """Those of segmentation among all the settings of a run, by their dotted names."""
    prefix = "segmentation."
    own = {name.removeprefix(prefix): value for name, value in settings.items() if name.startswith(prefix)}
    check(SegmentationConfig, own, prefix)  # a checkpoint may come from a stranger
    return SegmentationConfig(**own)


def segment_each(model: Any, batch: Batch, settings: SegmentationConfig) -> list[Tensor]:
    """The class of every pixel of each image, at the size of its mask.

    One image after the other: together they would have to be filled up to one size, and a scan sees that.
    """
    return [
        segment(model, image, tuple(mask.shape), settings)
        for image, mask in zip(batch["images"], batch["masks"], strict=True)
    ]


def segment(model: Any, image: Tensor, size: tuple[int, ...], settings: SegmentationConfig) -> Tensor:
    """The class of every pixel of an image of this height and width, given a prepared one of any size."""
    window = model.vim.config["img_size"][0] if settings.window == "slide" else None
    classes: Tensor = model.segment(image, size, window, settings.window_stride)
    return classes


def open_data(data: DataConfig, training: bool) -> MaskedImages:
    """One half of the data that the settings name."""
    if data.name not in ("ade20k", "masks"):
        raise ValueError(f"segmentation needs data.name ade20k or masks, got {data.name!r}")
    if data.path is None:
        raise ValueError("data.path is missing: --data.path must say where images/ and annotations/ are")
    images = ade20k(data.path, training) if data.name == "ade20k" else _masks(data, training)
    if data.num_classes not in (None, len(images.classes)):
        raise ValueError(f"{data.path!r} has {len(images.classes)} classes, data.num_classes is {data.num_classes}")
    return images


def _masks(data: DataConfig, training: bool) -> MaskedImages:
    assert data.path is not None
    return masked_folder(data.path, training, unlabelled=data.unlabelled)


def for_evaluation(images: MaskedImages, data: DataConfig, settings: SegmentationConfig, vim: Any) -> MaskedImages:
    """The held-out images, resized and normalised for the model."""
    facts = resolve_data_config({}, model=vim)
    prepare = ForEvaluation(facts["mean"], facts["std"], settings.long_side, settings.short_side)
    return images.prepared(prepare, facts["input_size"][0], data.skip_corrupt, data.in_memory)


def _for_training(images: MaskedImages, config: Config, vim: Any) -> MaskedImages:
    facts, settings = resolve_data_config({}, model=vim), config.segmentation
    prepare = ForTraining(
        side=vim.config["img_size"][0],
        mean=facts["mean"],
        std=facts["std"],
        long_side=settings.long_side,
        short_side=settings.short_side,
        min_scale=settings.min_scale,
        max_scale=settings.max_scale,
        category_ratio=settings.category_ratio,
        flip=config.augment.flip,
        photometric=settings.photometric,
    )
    return images.prepared(prepare, facts["input_size"][0], config.data.skip_corrupt, config.data.in_memory)
