"""Models made of state-space layers; importing this registers them in timm."""

from __future__ import annotations

from typing import Any

import timm
from torch import nn

from ..discretize.base import unknown
from .checkpoint import describe, load, save
from .mixer import Mixer
from .tokens import resample_pos_embed
from .vim import VisionMamba
from .weights import CheckpointError, LoadReport, load_checkpoint

__all__ = [
    "CheckpointError",
    "LoadReport",
    "Mixer",
    "VisionMamba",
    "create_model",
    "describe",
    "load",
    "load_checkpoint",
    "resample_pos_embed",
    "save",
]


def create_model(name: str, **kwargs: Any) -> nn.Module:
    """`timm.create_model`, which knows these models once they are imported; the arguments are those of the model.

    An unknown name is answered with the names of the models that come with this package.
    """
    if ":" not in name and not timm.is_model(name):
        raise ValueError(unknown("model", name, timm.list_models(module="vim")))
    return timm.create_model(name, **kwargs)
