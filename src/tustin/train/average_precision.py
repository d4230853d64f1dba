"""COCO's twelve figures for boxes and for masks, computed by faster-coco-eval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..data.rle import coco_library

__all__ = ["FIGURES", "coco_figures"]

FIGURES = {
    "ap75": "average precision at IoU 0.75",
    "ap": "average precision, mean over IoU 0.5 to 0.95",
    "ap50": "average precision at IoU 0.5",
    "ap_small": "average precision of objects below 32 x 32 pixels",
    "ap_medium": "average precision of objects between",
    "ap_large": "average precision of objects above 96 x 96 pixels",
    "ar1": "average recall of one detection per image",
    "ar10": "average recall of ten detections per image",
    "ar100": "average recall of a hundred detections per image",
    "ar_small": "average recall of objects below 32 x 32 pixels",
    "ar_medium": "average recall of objects between",
    "ar_large": "average recall of objects above 96 x 96 pixels",
}
"""Names and meanings, the paper's figure first."""

_PRECISIONS = ["ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large"]
_RECALLS = ["ar1", "ar10", "ar100", "ar_small", "ar_medium", "ar_large"]
"""As COCO's code puts them."""


def coco_figures(
    annotations: Mapping[str, Any], found: Iterable[Mapping[str, Any]], image_ids: Iterable[int]
) -> dict[str, float]:
    """All figures in percent, by names such as box_ap75 and mask_ap; one that no object counts for is left out.

    Args:
        annotations: What a file of COCO's annotations says.
        found: Detections in COCO's format of results: image_id, category_id, bbox, score and segmentation.
        image_ids: The images that were looked at; what is in others does not count.
    """
    library = coco_library()
    truth = library.COCO(dict(annotations), use_deepcopy=True)
    found, image_ids = list(found), sorted(image_ids)
    figures: dict[str, float] = {}
    for kind, iou_type, unused in (("box", "bbox", "segmentation"), ("mask", "segm", "bbox")):
        # Without the other kind, from which the library would take the size of what was found.
        detections = truth.loadRes([{name: one[name] for name in one if name != unused} for one in found])
        evaluation = library.COCOeval_faster(truth, detections, iou_type)
        evaluation.params.imgIds = image_ids
        evaluation.run()
        values = dict(zip(_PRECISIONS + _RECALLS, map(float, evaluation.stats), strict=True))
        figures |= {f"{kind}_{name}": 100 * values[name] for name in FIGURES if values[name] >= 0}
    return figures
