"""A detector of objects and their masks: Vision Mamba, a simple feature pyramid and Cascade Mask R-CNN's heads.

Composed from torchvision's detection parts. The backbone sees the whole image, at 1024 x 1024 in the paper: no windows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

from timm.data import resolve_model_data_config
from timm.layers import LayerNorm2d
from torch import Tensor
from torch.nn import functional as F
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.generalized_rcnn import GeneralizedRCNN
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
from torchvision.models.detection.rpn import RegionProposalNetwork, RPNHead
from torchvision.models.detection.transform import GeneralizedRCNNTransform, resize_boxes
from torchvision.ops import MultiScaleRoIAlign
from torchvision.ops.poolers import LevelMapper

from ..support.ranges import Range
from .cascade import POOLED, STAGES, Cascade, Stage
from .simple_pyramid import SimplePyramid
from .vision_mamba import VisionMamba, Width

__all__ = ["Detector"]

CategoryId: TypeAlias = Annotated[int, Range(0, 2**63 - 1)]
Boxes: TypeAlias = Annotated[int, Range(1, 100_000)]

ASPECT_RATIOS = (0.5, 1.0, 2.0)
LONGEST = 2
"""How many times the shorter side the longer one may be; the shorter one of an image beyond that is resized to less."""


class Detector(GeneralizedRCNN):  # type: ignore[misc]
    """Finds the objects in images (channels, height, width) of any size, with values from 0 to 1.

    In training it takes images of the size that `vim` is made for and targets, dicts of boxes (n, 4) as left, top,
    right, bottom, labels (n) from 1 and masks (n, height, width), and returns losses by name. In evaluation it returns
    for each image a dict of boxes, labels, scores and masks (n, 1, height, width) from 0 to 1, best first.

    Args:
        vim: The backbone; its head is removed. In evaluation the shorter side of an image is resized to its image size.
        category_ids: The id of each class in the dataset; label i, counted from 1, is the i-th.
        channels: Width of all maps and convolutions.
        hidden: Width of the linear layer of a stage.
        proposals: Proposed boxes per image that the first stage classifies.
        samples: Proposed boxes per image that it is trained on.
    """

    task = "detection"
    classes = "category_ids"

    def __init__(
        self,
        vim: VisionMamba,
        category_ids: Sequence[CategoryId],
        channels: Width = 256,
        hidden: Width = 1024,
        proposals: Boxes = 1000,
        samples: Boxes = 512,
    ) -> None:
        num_classes = len(category_ids)
        pyramid = SimplePyramid(vim, channels)
        sizes = tuple((8 * stride,) for stride in pyramid.strides)
        rpn = RegionProposalNetwork(
            AnchorGenerator(sizes, (ASPECT_RATIOS,) * len(sizes)),
            _ProposalHead(channels, len(ASPECT_RATIOS), conv_depth=2),
            fg_iou_thresh=0.7,
            bg_iou_thresh=0.3,
            batch_size_per_image=256,
            positive_fraction=0.5,
            pre_nms_top_n={"training": 2 * proposals, "testing": proposals},
            post_nms_top_n={"training": proposals, "testing": proposals},
            nms_thresh=0.7,
        )
        cascade = Cascade(
            [Stage(iou, weights, channels, hidden, num_classes, samples) for iou, weights in STAGES],
            box_roi_pool=_roi_align(pyramid.strides, POOLED),
            mask_roi_pool=_roi_align(pyramid.strides, 2 * POOLED),
            mask_head=MaskRCNNHeads(channels, [channels] * 4, dilation=1, norm_layer=LayerNorm2d),
            mask_predictor=MaskRCNNPredictor(channels, channels, num_classes + 1),
        )
        facts = resolve_model_data_config(vim)
        side = min(vim.config["img_size"])
        super().__init__(pyramid, rpn, cascade, _Prepare(side, facts["mean"], facts["std"], pyramid.strides[-1]))
        self.num_classes = num_classes
        self.config: dict[str, Any] = {
            "discretization": vim.config["discretization"],
            "category_ids": list(category_ids),
            "channels": channels,
            "hidden": hidden,
            "proposals": proposals,
            "samples": samples,
            "backbone": vim.config,
        }

    @property
    def vim(self) -> VisionMamba:
        vim = self.backbone.vim
        assert isinstance(vim, VisionMamba)
        return vim

    @property
    def pretrained_cfg(self) -> Any:
        """Image preparation and class names, as in timm's models."""
        return self.vim.pretrained_cfg

    def forward(self, images: Sequence[Tensor], targets: Sequence[dict[str, Tensor]] | None = None) -> Any:
        """In evaluation one image at a time, because the padding of a batch would change the scans."""
        if self.training:
            return super().forward(list(images), None if targets is None else list(targets))
        return [{name: part for name, part in one.items() if name != "proposals"} for one in self.detect(images)]

    def detect(self, images: Sequence[Tensor]) -> list[dict[str, Tensor]]:
        """The result of `forward` in evaluation, and the "proposals" (n, 4)."""
        found: list[dict[str, Tensor]] = []
        for image in images:
            prepared, _ = self.transform([image])
            maps = self.backbone(prepared.tensors)
            proposals, _ = self.rpn(prepared, maps)
            detections, _ = self.roi_heads(maps, proposals, prepared.image_sizes)
            size = tuple(image.shape[-2:])
            [detected] = self.transform.postprocess(detections, prepared.image_sizes, [size])
            found.append({**detected, "proposals": resize_boxes(proposals[0], prepared.image_sizes[0], size)})
        return found

    def no_weight_decay(self) -> set[str]:
        """See `VisionMamba.no_weight_decay`; biases and norms of the heads are left out as well."""
        vim = {f"backbone.vim.{name}" for name in self.vim.no_weight_decay()}
        return vim | {name for name, parameter in self.named_parameters() if parameter.ndim <= 1}


class _ProposalHead(RPNHead):  # type: ignore[misc]
    """In float32 whatever the precision of the convolutions: a box in half precision would be off by pixels."""

    def forward(self, maps: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        logits, changes = super().forward(maps)
        return [one.float() for one in logits], [one.float() for one in changes]


class _Prepare(GeneralizedRCNNTransform):  # type: ignore[misc]
    """Normalises, in evaluation resizes with antialiasing as training does, and fills up to a multiple of a stride."""

    def __init__(self, side: int, mean: Sequence[float], std: Sequence[float], multiple_of: int) -> None:
        super().__init__(side, LONGEST * side, list(mean), list(std), size_divisible=multiple_of)

    def resize(self, image: Tensor, target: Any = None) -> tuple[Tensor, Any]:
        if self.training:  # the data are jittered to the right size
            return image, target
        height, width = image.shape[-2:]
        scale = min(self.min_size[0] / min(height, width), self.max_size / max(height, width))
        size = max(1, round(height * scale)), max(1, round(width * scale))
        return F.interpolate(image[None], size, mode="bilinear", antialias=True)[0], target


def _roi_align(strides: Sequence[int], side: int) -> MultiScaleRoIAlign:
    """Cuts boxes out of the map that fits their size, all but the coarsest.

    torchvision would guess the strides from the first image it sees, and wrong if that one is mostly filled up.
    """
    strides = strides[:-1]
    pool = MultiScaleRoIAlign([str(stride) for stride in strides], output_size=side, sampling_ratio=2)
    pool.scales = [1 / stride for stride in strides]
    pool.map_levels = LevelMapper(int(math.log2(strides[0])), int(math.log2(strides[-1])))
    return pool
