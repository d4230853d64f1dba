"""Models made of state-space layers; importing this registers them in timm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import timm
from torch import nn

from ..support.names import unknown
from . import vim  # noqa: F401  registers the variants in timm
from .checkpoint import CheckpointError, LoadReport, NotDownloaded, describe, load, load_checkpoint, save
from .detector import Detector
from .diagnose import Diagnosis, diagnose
from .mixer import Mixer
from .pyramid import FeaturePyramid
from .segmenter import Segmenter
from .tokens import resample_pos_embed
from .variants import model_names
from .vision_mamba import VisionMamba

__all__ = [
    "CheckpointError",
    "Detector",
    "Diagnosis",
    "FeaturePyramid",
    "LoadReport",
    "Mixer",
    "NotDownloaded",
    "Segmenter",
    "VisionMamba",
    "create_model",
    "describe",
    "diagnose",
    "load",
    "load_checkpoint",
    "model_names",
    "resample_pos_embed",
    "save",
]


def create_model(name: str, *, checkpoint_path: str | Path | None = None, **kwargs: Any) -> nn.Module:
    """Build a model by its name in timm's registry, as `timm.create_model` does; `kwargs` are the model's arguments.

    `checkpoint_path` and `pretrained=True` load weights by `load_checkpoint`: weights trained with another
    discretization are refused, unless `allow_other_discretization=True`. The error about an unknown name lists the
    models of this package.
    """
    if ":" not in name and not timm.is_model(name):
        raise ValueError(unknown("model", name, model_names()))
    model = timm.create_model(name, **kwargs)
    if checkpoint_path is not None:
        allow = kwargs.get("allow_other_discretization", False)
        load_checkpoint(model, checkpoint_path, allow_other_discretization=allow)
    return model
