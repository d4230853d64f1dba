"""Images for training and evaluation, in batches that depend on nothing but their place in the run."""

from .batches import BatchSource, Order, evaluation_batches, training_batches
from .digits import Digits
from .images import Images, cifar, folder

__all__ = [
    "BatchSource",
    "Digits",
    "Images",
    "Order",
    "cifar",
    "evaluation_batches",
    "folder",
    "training_batches",
]
