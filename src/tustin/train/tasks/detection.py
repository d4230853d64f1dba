"""Object detection and instance segmentation: data, model, losses and COCO's figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torchvision.ops import box_iou

from ...data.batches import Batch
from ...data.coco import Coco, as_results, coco, large_scale_jitter
from ...models import Detector, Diagnosis, diagnose, save
from ...models.cascade import STAGES
from ...models.detector import Boxes
from ...models.vision_mamba import Width
from ..average_precision import coco_figures
from ..metrics import METRICS, Gather
from .base import DataSet, Evaluation, Scale, backbone_of, open_data

if TYPE_CHECKING:
    from ..config import Config, DataConfig

__all__ = ["DATA", "NAME", "Detection", "DetectionConfig", "DetectionMeter", "evaluation_of"]

NAME = Detector.task


def _coco(data: DataConfig, training: bool) -> Coco:
    assert data.path is not None
    return coco(data.path, training, data.skip_corrupt)


_READ = {"path", "num_classes", "seed", "workers", "skip_corrupt"}
DATA = {"coco": DataSet(_coco, _READ, {"flip", "repeats"}, "train2017/, val2017/ and annotations/ are")}

PROPOSED_FROM = 0.5
"""The IoU with a proposal from which on an object counts as proposed."""


@dataclass
class DetectionConfig:
    """Object detection and instance segmentation; training images have the side model.img_size."""

    min_scale: Scale = 0.1
    """Smallest random size of a training image, relative to model.img_size."""
    max_scale: Scale = 2.0
    """Largest random size; larger images are cropped, smaller ones padded."""
    channels: Width = 256
    """Width of the feature pyramid and of the heads' convolutions."""
    hidden: Width = 1024
    """Width of the linear layer of each stage of the cascade."""
    proposals: Boxes = 1000
    """Proposed boxes per image that the cascade classifies."""
    samples: Boxes = 512
    """Proposed boxes per image that the cascade is trained on."""


PARTS = {
    "loss_objectness": "proposals_objectness",
    "loss_rpn_box_reg": "proposals_boxes",
    **{
        f"loss_{name}_{number}": f"stage_{number}_{told}"
        for number, _ in enumerate(STAGES, start=1)
        for name, told in (("class", "classes"), ("box", "boxes"))
    },
    "loss_mask": "masks",
}
"""The losses of a detector, and what a record calls them."""


class Detection:
    """The task of a config; it implements `Task`."""

    metrics = ("box_ap75", "box_ap", "box_ap50", "mask_ap75", "mask_ap", "mask_ap50", "proposal_recall")
    primary = METRICS[metrics[0]]

    def __init__(self, config: Config) -> None:
        train, held_out = (open_data(NAME, DATA, config.data, training) for training in (True, False))
        if (train.classes, train.category_ids) != (held_out.classes, held_out.category_ids):
            raise ValueError(f"the categories of train2017 and val2017 in {config.data.path!r} differ")
        self.class_names = train.classes
        heads = asdict(config.detection)
        scale = heads.pop("min_scale"), heads.pop("max_scale")
        self.model = Detector(backbone_of(config, num_classes=0), train.category_ids, **heads)
        side, mean = self.model.transform.min_size[0], self.model.transform.image_mean
        self.train_data = replace(train, jitter=large_scale_jitter(side, mean, scale, config.augment.flip))
        self.evaluation = evaluation_of(self.model, held_out, config.data)

    def notes(self) -> Iterable[str]:
        return ()

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        losses = model(batch["images"], batch["targets"])
        return {PARTS[name]: losses[name] for name in PARTS}

    def diagnose(self, model: nn.Module, batch: Batch) -> Diagnosis:
        assert isinstance(model, Detector)
        images, _ = model.transform(batch["images"])
        return diagnose(model.vim, images.tensors)

    def save(self, model: nn.Module, path: Path, metadata: Mapping[str, Any]) -> None:
        save(model, path, class_names=self.class_names, metadata=metadata)


class DetectionMeter:
    """COCO's twelve figures for boxes and for masks, and the recall of the proposals, in percent.

    The recall is the share of the objects that a proposal overlaps by an IoU of 0.5 or more: no stage can find others.
    """

    def __init__(self, data: Coco) -> None:
        self.data = data
        self.boxes = {photo.id: photo.boxes() for photo in data.photos}
        self.found: dict[int, tuple[list[dict[str, Any]], int]] = {}
        """Of each image what was detected, and how many of its objects were proposed."""

    def update(self, output: list[dict[str, Tensor]], batch: Batch) -> None:
        for detections, target in zip(output, batch["targets"], strict=True):
            image = target["image_id"]
            results = as_results(detections, image, self.data.category_ids)
            self.found[image] = results, self._proposed(detections["proposals"].cpu(), self.boxes[image])

    @staticmethod
    def _proposed(proposals: Tensor, objects: Tensor) -> int:
        """How many objects a proposal overlaps."""
        if not len(proposals):
            return 0
        return int((box_iou(proposals, objects) >= PROPOSED_FROM).any(0).sum())

    def result(self, gather: Gather) -> dict[str, Any]:
        found = dict(gather(list(self.found.items())))  # by image, so that none counts twice
        figures = coco_figures(
            self.data.annotations, chain.from_iterable(results for results, _ in found.values()), found
        )
        if Detection.primary.name not in figures:
            raise ValueError(f"there is no object in the {len(found)} images to evaluate on")
        objects, proposed = sum(len(self.boxes[image]) for image in found), sum(number for _, number in found.values())
        return {**figures, "proposal_recall": 100 * proposed / objects}


def evaluation_of(model: Detector, images: Coco, data: DataConfig, settings: object = None) -> Evaluation:
    """Of a model on images, of which none of its settings changes anything."""
    if images.category_ids != model.config["category_ids"]:
        raise ValueError(f"the category ids in {data.path!r} differ from those that the model was trained on")
    return Evaluation(
        images, images.classes, lambda model, batch: model.detect(batch["images"]), lambda: DetectionMeter(images)
    )
