"""COCO's twelve figures for boxes and for masks, computed by faster-coco-eval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..data.rle import coco_library
from ..report import terminal

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["FIGURES", "coco_figures", "table"]

FIGURES = {
    "ap75": "AP at IoU 0.75",
    "ap": "AP, mean over IoU 0.5 to 0.95",
    "ap50": "AP at IoU 0.5",
    "ap_small": "AP of objects below 32 x 32",
    "ap_medium": "AP of objects between",
    "ap_large": "AP of objects above 96 x 96",
    "ar1": "AR, 1 detection per image",
    "ar10": "AR, 10 detections per image",
    "ar100": "AR, 100 detections per image",
    "ar_small": "AR of objects below 32 x 32",
    "ar_medium": "AR of objects between",
    "ar_large": "AR of objects above 96 x 96",
}
"""Names and meanings, the paper's figure first: average precision, average recall, and sizes in pixels."""

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
    # Numbered from 1: the library takes an object with the id 0 for one that was not found.
    numbered = [{**one, "id": number} for number, one in enumerate(annotations["annotations"], start=1)]
    truth = library.COCO({**annotations, "annotations": numbered}, use_deepcopy=True)
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


def table(metrics: Mapping[str, float]) -> Table:
    """The figures of an evaluation for a terminal: a row each, boxes beside masks."""
    rows = terminal.table(["%", "boxes", "masks"], words=["%"])
    for name, meaning in FIGURES.items():
        values = (metrics.get(f"{kind}_{name}") for kind in ("box", "mask"))
        rows.add_row(meaning, *("no object" if value is None else f"{value:.2f}" for value in values))
    return rows
