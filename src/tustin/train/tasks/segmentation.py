"""Semantic segmentation: data, model, loss and metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
from timm.data import resolve_data_config
from torch import Tensor, nn

from ...data.ade20k import ade20k
from ...data.batches import Batch
from ...data.census import census
from ...data.mask_transforms import ForEvaluation, ForTraining
from ...data.masks import UNLABELLED, MaskedImages, masked_folder
from ...models import Diagnosis, Segmenter, diagnose, save
from ...models.vision_mamba import Width
from ...report import terminal
from ...support.ranges import Range
from ..metrics import METRICS, Gather
from .base import DataSet, Evaluation, Scale, backbone_of, open_data

if TYPE_CHECKING:
    from rich.table import Table

    from ..config import Config, DataConfig

__all__ = ["DATA", "NAME", "Segmentation", "SegmentationConfig", "SegmentationMeter", "evaluation_of"]
__all__ += ["iou_table", "segment"]

NAME = Segmenter.task


def _ade20k(data: DataConfig, training: bool) -> MaskedImages:
    assert data.path is not None
    return ade20k(data.path, training)


def _masks(data: DataConfig, training: bool) -> MaskedImages:
    assert data.path is not None
    return masked_folder(data.path, training, unlabelled=data.unlabelled)


_READ = {"path", "num_classes", "seed", "workers", "skip_corrupt", "in_memory"}
_AT_PATH = "images/ and annotations/ are"
DATA = {
    "ade20k": DataSet(_ade20k, _READ, {"flip", "repeats"}, _AT_PATH),
    "masks": DataSet(_masks, {*_READ, "unlabelled"}, {"flip", "repeats"}, _AT_PATH),
}


@dataclass
class SegmentationConfig:
    """Semantic segmentation; crops have the side model.img_size."""

    long_side: Annotated[int, Range(1, 2**16)] = 2048
    """Limit of the long side of an image before random scaling, and in evaluation."""
    short_side: Annotated[int, Range(1, 2**16)] = 512
    """Limit of the short side; an image is resized with its proportions until a side reaches its limit."""
    min_scale: Scale = 0.5
    """Smallest random scale in training."""
    max_scale: Scale = 2.0
    """Largest random scale in training."""
    category_ratio: Annotated[float, Range(0, 1, above=True)] = 0.75
    """Largest share of one class among the labelled pixels of a training crop; after ten tries any crop is used."""
    photometric: bool = True
    """Distort brightness, contrast, saturation and hue of training images at random."""
    channels: Width | None = None
    """Width of the UperNet head and of the auxiliary head; default: the width of a token."""
    auxiliary_weight: Annotated[float, Range(0, 100)] = 0.4
    """Weight of the auxiliary head's loss."""
    window: Literal["whole", "slide"] = "whole"
    """Evaluate an image as a whole, or in windows of side model.img_size whose logits are averaged."""
    window_stride: Annotated[int, Range(1, 2**16)] = 341
    """Pixels between windows."""


class Segmentation:
    """The task of a config; it implements `Task`."""

    metrics = ("miou", "pixel_accuracy")
    primary = METRICS[metrics[0]]

    def __init__(self, config: Config) -> None:
        self.settings, self.smoothing = config.segmentation, config.optim.smoothing
        train, held_out = (open_data(NAME, DATA, config.data, training) for training in (True, False))
        self.class_names = train.classes
        vim = backbone_of(config, num_classes=0)
        self.model = Segmenter(vim, len(self.class_names), self.settings.channels)
        self.train_data = _for_training(train, config, vim)
        self.evaluation = evaluation_of(self.model, held_out, config.data, self.settings)

    def notes(self) -> Iterable[str]:
        """How much of the masks each class has: names that a wrong data.unlabelled has shifted stand out."""
        return census(self.train_data).lines()

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        logits, auxiliary = model(batch["images"])
        main, extra = (self._cross_entropy(one, batch["masks"]) for one in (logits, auxiliary))
        return {"pixels": main, "auxiliary": self.settings.auxiliary_weight * extra}

    def _cross_entropy(self, logits: Tensor, masks: Tensor) -> Tensor:
        """The mean over the labelled pixels, 0 where there are none."""
        total = nn.functional.cross_entropy(
            logits, masks, ignore_index=UNLABELLED, label_smoothing=self.smoothing, reduction="sum"
        )
        return total / (masks != UNLABELLED).sum().clamp(min=1)

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


def iou_table(class_iou: Mapping[str, float | None]) -> Table:
    """IoU by class, in the order of the classes, for a terminal."""
    rows = terminal.table(["class", "IoU, %"], words=["class"])
    for name, value in class_iou.items():
        rows.add_row(name, "nowhere" if value is None else f"{value:.2f}")
    return rows


def evaluation_of(model: Segmenter, images: MaskedImages, data: DataConfig, settings: SegmentationConfig) -> Evaluation:
    """Of a model on images, which are resized and normalised for it."""
    facts = resolve_data_config({}, model=model.vim)
    prepare = ForEvaluation(facts["mean"], facts["std"], settings.long_side, settings.short_side)
    return Evaluation(
        images.prepared(prepare, facts["input_size"][0], data.skip_corrupt, data.in_memory),
        images.classes,
        lambda model, batch: _segment_each(model, batch, settings),
        lambda: SegmentationMeter(images.classes),
    )


def _segment_each(model: Any, batch: Batch, settings: SegmentationConfig) -> list[Tensor]:
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
