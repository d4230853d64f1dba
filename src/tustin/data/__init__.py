"""Images for training and evaluation, in batches that depend on nothing but their place in the run."""

from .ade20k import ade20k
from .batches import BatchSource, Order, evaluation_batches, training_batches
from .coco import Coco, coco
from .digits import Digits
from .images import Images, cifar, folder
from .masks import MaskedImages, masked_folder
from .shapes import write_masked_shapes, write_shapes

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
    "write_masked_shapes",
    "write_shapes",
]
