"""Cascade Mask R-CNN's heads (arXiv 1906.09756): every stage refines the boxes of the one before, by a stricter rule.

    proposals ─ stage 1, IoU 0.5 ─ boxes ─ stage 2, IoU 0.6 ─ boxes ─ stage 3, IoU 0.7 ─ boxes ─ masks

What counts as an object for a stage overlaps one by at least its IoU. A stage is torchvision's `RoIHeads`, with what
that takes injected; here is only how the stages follow each other.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from timm.layers import LayerNorm2d
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.models.detection.faster_rcnn import FastRCNNConvFCHead, FastRCNNPredictor
from torchvision.models.detection.roi_heads import RoIHeads, maskrcnn_inference, maskrcnn_loss
from torchvision.ops import clip_boxes_to_image

__all__ = ["STAGES", "Cascade", "Stage"]

STAGES = (
    (0.5, (10.0, 10.0, 5.0, 5.0)),
    (0.6, (20.0, 20.0, 10.0, 10.0)),
    (0.7, (30.0, 30.0, 15.0, 15.0)),
)
"""Of each stage the IoU from which a box counts as an object, and the weights of x, y, width and height of a change."""

POOLED = 7
"""Side of what a stage sees of a box, in cells."""

Features: TypeAlias = dict[str, Tensor]
Target: TypeAlias = dict[str, Tensor]
Sizes: TypeAlias = list[tuple[int, int]]
"""(height, width) of every image."""


class Predictor(FastRCNNPredictor):  # type: ignore[misc]
    """Logits of the classes, background first, and one box for all of them."""

    def __init__(self, hidden: int, num_classes: int) -> None:
        super().__init__(hidden, num_classes + 1)
        self.bbox_pred = nn.Linear(hidden, 4)
        nn.init.normal_(self.cls_score.weight, std=0.01)
        nn.init.normal_(self.bbox_pred.weight, std=0.001)  # the next stage first gets the boxes as they are
        for layer in (self.cls_score, self.bbox_pred):
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits, changes = super().forward(x)
        return logits.float(), changes.float()  # a box in half precision would be off by pixels


class Stage(RoIHeads):  # type: ignore[misc]
    """One step: of pooled features (boxes, channels, 7, 7) the logits (boxes, classes + 1) and changes (boxes, 4)."""

    def __init__(
        self, iou: float, weights: tuple[float, ...], channels: int, hidden: int, num_classes: int, samples: int
    ) -> None:
        super().__init__(
            box_roi_pool=None,
            box_head=FastRCNNConvFCHead((channels, POOLED, POOLED), [channels] * 4, [hidden], norm_layer=LayerNorm2d),
            box_predictor=Predictor(hidden, num_classes),
            fg_iou_thresh=iou,
            bg_iou_thresh=iou,
            batch_size_per_image=samples,
            positive_fraction=0.25,
            bbox_reg_weights=weights,
            score_thresh=0.05,
            nms_thresh=0.5,
            detections_per_img=100,
        )

    def forward(self, pooled: Tensor) -> tuple[Tensor, Tensor]:
        logits, changes = self.box_predictor(self.box_head(pooled))
        return logits, changes

    def match(self, boxes: list[Tensor], targets: list[Target]) -> tuple[list[Tensor], list[Tensor]]:
        """Of every box the object that it overlaps most, and that object's class, or 0 below the stage's IoU."""
        matched, labels = self.assign_targets_to_proposals(
            boxes, [target["boxes"] for target in targets], [target["labels"] for target in targets]
        )
        return matched, labels

    def losses(
        self,
        logits: Tensor,
        changes: Tensor,
        boxes: list[Tensor],
        targets: list[Target],
        matched: list[Tensor],
        labels: list[Tensor],
    ) -> tuple[Tensor, Tensor]:
        """Of the classes and, for boxes that are an object, of the box; both as a mean over all boxes."""
        objects = [
            target["boxes"][index] if len(target["boxes"]) else torch.zeros_like(box)  # nothing to regress to
            for target, index, box in zip(targets, matched, boxes, strict=True)
        ]
        wanted = torch.cat(self.box_coder.encode(objects, boxes))
        truth = torch.cat(labels)
        of_object, count = truth > 0, max(1, len(truth))
        classes = F.cross_entropy(logits, truth, reduction="sum") / count
        box = F.smooth_l1_loss(changes[of_object], wanted[of_object], beta=1 / 9, reduction="sum") / count
        return classes, box

    def refine(self, changes: Tensor, boxes: list[Tensor], sizes: Sizes) -> list[Tensor]:
        """The changed boxes, inside their images; gradients end here."""
        if not len(changes):
            return boxes
        refined = self.box_coder.decode(changes.detach(), boxes).squeeze(1).split([len(box) for box in boxes])
        return [clip_boxes_to_image(box, size) for box, size in zip(refined, sizes, strict=True)]


class Cascade(nn.Module):
    """The stages one after the other, then the masks; it takes and gives what torchvision's `RoIHeads` does.

    Args:
        stages: In their order.
        box_roi_pool: Cuts boxes out of the maps, for the stages.
        mask_roi_pool: The same for the masks.
        mask_head: From what was cut out to what the mask predictor takes.
        mask_predictor: A mask for each class.
    """

    def __init__(
        self,
        stages: list[Stage],
        box_roi_pool: nn.Module,
        mask_roi_pool: nn.Module,
        mask_head: nn.Module,
        mask_predictor: nn.Module,
    ) -> None:
        super().__init__()
        self.stages = nn.ModuleList(stages)
        self.box_roi_pool, self.mask_roi_pool = box_roi_pool, mask_roi_pool
        self.mask_head, self.mask_predictor = mask_head, mask_predictor

    def forward(
        self, features: Features, proposals: list[Tensor], sizes: Sizes, targets: list[Target] | None = None
    ) -> tuple[list[dict[str, Tensor]], dict[str, Tensor]]:
        """Detections with boxes, labels, scores and masks, or in training the losses by name; the other is empty."""
        if self.training:
            assert targets is not None
            return [], self._losses(features, proposals, sizes, targets)
        return self._detections(features, proposals, sizes), {}

    def _losses(
        self, features: Features, proposals: list[Tensor], sizes: Sizes, targets: list[Target]
    ) -> dict[str, Tensor]:
        stages: list[Any] = list(self.stages)
        boxes, matched, labels, _ = stages[0].select_training_samples(list(proposals), targets)
        losses = {"loss_mask": self._mask_loss(features, boxes, sizes, targets, matched, labels)}
        for number, stage in enumerate(stages, start=1):
            if number > 1:
                matched, labels = stage.match(boxes, targets)
            pooled = self.box_roi_pool(features, boxes, sizes)
            if pooled.requires_grad:  # all stages together weigh on the features as one would
                pooled.register_hook(lambda gradient: gradient / len(stages))
            logits, changes = stage(pooled)
            losses[f"loss_class_{number}"], losses[f"loss_box_{number}"] = stage.losses(
                logits, changes, boxes, targets, matched, labels
            )
            boxes = stage.refine(changes, boxes, sizes)
        return losses

    def _mask_loss(
        self,
        features: Features,
        boxes: list[Tensor],
        sizes: Sizes,
        targets: list[Target],
        matched: list[Tensor],
        labels: list[Tensor],
    ) -> Tensor:
        of_object = [label > 0 for label in labels]
        boxes = [box[kept] for box, kept in zip(boxes, of_object, strict=True)]
        matched = [index[kept] for index, kept in zip(matched, of_object, strict=True)]
        masks, classes = [target["masks"] for target in targets], [target["labels"] for target in targets]
        loss: Tensor = maskrcnn_loss(self._mask_logits(features, boxes, sizes), boxes, masks, classes, matched)
        return loss

    def _detections(self, features: Features, proposals: list[Tensor], sizes: Sizes) -> list[dict[str, Tensor]]:
        stages: list[Any] = list(self.stages)
        refined, probabilities = proposals, []
        for stage in stages:
            boxes = refined
            logits, changes = stage(self.box_roi_pool(features, boxes, sizes))
            probabilities.append(logits.softmax(-1))
            refined = stage.refine(changes, boxes, sizes)
        mean = torch.stack(probabilities).mean(0)
        # It decodes the last stage's boxes itself, a box for each class, and takes the softmax of logits.
        found = stages[-1].postprocess_detections(mean.log(), changes.repeat(1, mean.shape[1]), boxes, sizes)
        detections = [
            {"boxes": box, "scores": score, "labels": label} for box, score, label in zip(*found, strict=True)
        ]
        mask_logits = self._mask_logits(features, [one["boxes"] for one in detections], sizes)
        masks = maskrcnn_inference(mask_logits, [one["labels"] for one in detections])
        return [{**one, "masks": mask} for one, mask in zip(detections, masks, strict=True)]

    def _mask_logits(self, features: Features, boxes: list[Tensor], sizes: Sizes) -> Tensor:
        logits: Tensor = self.mask_predictor(self.mask_head(self.mask_roi_pool(features, boxes, sizes)))
        return logits
