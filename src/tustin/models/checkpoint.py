"""Our own checkpoints: one safetensors file that holds the weights and all that is needed to build the model again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import timm
from torch import nn

from ..discretize.base import unknown
from ..files import replacing
from .vim import VisionMamba
from .weights import CheckpointError, Weights, check_discretization, digest, fit, plain_model, read

__all__ = ["describe", "load", "save"]

_FORMAT = 1
_DATA = ("input_size", "mean", "std", "interpolation", "crop_pct", "crop_mode")
"""How images are prepared: what timm's transforms read from a model's `pretrained_cfg`."""


def save(
    model: nn.Module,
    path: str | Path,
    *,
    class_names: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Write a model to one safetensors file, from which `load` builds it again. The same model gives the same bytes.

    Args:
        model: A VisionMamba, possibly inside the wrappers of compilation or distributed training.
        path: The file; replaced whole or not at all.
        class_names: A name for each class; by default those the model was loaded with.
        metadata: Whatever else should travel with it, as plain values: the epoch, the accuracy, the recipe.
    """
    model = plain_model(model)
    pretrained_cfg = getattr(model, "pretrained_cfg", {})
    if class_names is None:
        known = pretrained_cfg.get("label_names")
        class_names = known if known and len(known) == model.num_classes else None
    elif len(class_names) != model.num_classes:
        raise ValueError(f"{len(class_names)} class names were given for a model of {model.num_classes} classes")
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    from .. import __version__

    description = {
        "format": _FORMAT,
        "tustin": __version__,
        "architecture": pretrained_cfg.get("architecture"),
        "discretization": model.config["discretization"],
        "config": model.config,
        "data": {name: pretrained_cfg[name] for name in _DATA if pretrained_cfg.get(name) is not None},
        "class_names": None if class_names is None else list(class_names),
        "metadata": dict(metadata or {}),
        "sha256": digest(tensors),
    }
    try:
        text = json.dumps(description)
    except TypeError as error:
        raise ValueError(
            f"a checkpoint's metadata must be plain values (text, numbers, lists, dicts): {error}"
        ) from error
    with replacing(path) as file:
        # One entry: safetensors writes several in an order that changes from run to run.
        file.write(safetensors.torch.save(tensors, {"tustin": text}))


def load(path: str | Path, *, allow_other_discretization: bool = False, **overrides: Any) -> VisionMamba:
    """Build the model that a file of `save` holds, in evaluation mode.

    Args:
        path: The file.
        allow_other_discretization: Accept a `discretization=` other than the one the weights were trained with.
        overrides: Arguments of VisionMamba that shall differ from the file's: `img_size`, `drop_path_rate`, `backend`,
            or `num_classes`, for which the head starts anew.
    """
    weights = read(path)
    told = _description_of(weights)
    config = told["config"] | overrides
    check_discretization(config["discretization"], weights, allow_other_discretization)
    model = _build(told, config)
    model.to(weights.tensors["pos_embed"].dtype)
    fit(model, weights, allow_other_discretization=allow_other_discretization)
    return model.eval()


def describe(path: str | Path) -> dict[str, Any]:
    """What a file of `save` says about itself: architecture, discretization, config, data, class_names, metadata."""
    return _description_of(read(path))


def _description_of(weights: Weights) -> dict[str, Any]:
    told = weights.description
    if told is None:
        raise CheckpointError(
            f"{weights.source} does not say which model it is of: it was not written by tustin.save; "
            "build the model with tustin.create_model and use tustin.load_checkpoint"
        )
    if told["format"] > _FORMAT:
        raise CheckpointError(f"{weights.source} was written by a newer version, tustin {told['tustin']}")
    return told


def _build(told: Mapping[str, Any], config: dict[str, Any]) -> VisionMamba:
    names = told["class_names"]
    if names is not None and len(names) != config["num_classes"]:
        names = None
    about = {key: tuple(value) if isinstance(value, list) else value for key, value in told["data"].items()}
    about |= {"num_classes": config["num_classes"], "label_names": names}
    if told["architecture"] is None:  # made from the class, without a name
        model: Any = VisionMamba(**config)
        model.pretrained_cfg = model.default_cfg = about
    elif not timm.is_model(told["architecture"]):
        raise CheckpointError(unknown("architecture", told["architecture"], timm.list_models(module="vim")))
    else:
        model = timm.create_model(told["architecture"], pretrained_cfg_overlay=about, **config)
    assert isinstance(model, VisionMamba)
    return model
