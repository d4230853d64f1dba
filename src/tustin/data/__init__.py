"""Images for training and evaluation, in batches that depend on nothing but their place in the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..support.imports import lazy_names

__all__ = [
    "BatchSource",
    "Coco",
    "Digits",
    "Images",
    "MaskedImages",
    "Order",
    "ade20k",
    "cifar",
    "coco",
    "evaluation_batches",
    "folder",
    "masked_folder",
    "training_batches",
    "write_shapes",
]

if TYPE_CHECKING:
    from .ade20k import ade20k
    from .batches import BatchSource, Order, evaluation_batches, training_batches
    from .coco import Coco, coco
    from .digits import Digits
    from .images import Images, cifar, folder
    from .masks import MaskedImages, masked_folder
    from .shapes import write_shapes
else:  # reading a picture needs neither PyTorch nor what it takes to train
    __getattr__ = lazy_names(
        __name__,
        {
            ".ade20k": ("ade20k",),
            ".batches": (
                "BatchSource",
                "Order",
                "evaluation_batches",
                "training_batches",
            ),
            ".coco": (
                "Coco",
                "coco",
            ),
            ".digits": ("Digits",),
            ".images": (
                "Images",
                "cifar",
                "folder",
            ),
            ".masks": (
                "MaskedImages",
                "masked_folder",
            ),
            ".shapes": ("write_shapes",),
        },
    )
