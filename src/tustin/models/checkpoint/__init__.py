"""Checkpoints: ours, one safetensors file with the weights and all that builds the model again, and those of others.

A model for another task than classification is made of a Vision Mamba, `vim`, and what its `config` says besides the
"backbone": the class builds it again as `Class(vim, **config)`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import timm
import torch
from torch import nn

from ...discretize import recorded_origin
from ...support.files import replacing
from ..vision_mamba import VisionMamba, plain_model, unwrapped
from .fitting import LoadReport, check_discretization, fit, insist_on_rule
from .header import DATA, FORMAT, MODELS, own_arguments
from .hub import PREFIX, NotDownloaded, download, is_repository
from .matching import CheckpointError, check_dtypes, insist_on_names_and_shapes
from .reading import Weights, digest, read

__all__ = ["CheckpointError", "LoadReport", "NotDownloaded", "describe", "load", "load_checkpoint", "save"]


def save(
    model: nn.Module,
    path: str | Path,
    *,
    class_names: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Write a model to one safetensors file, from which `load` builds it again. Equal models give equal bytes.

    Args:
        model: A VisionMamba or a model built on one; compiled and distributed wrappers are removed.
        path: The file to write; an existing file is replaced atomically.
        class_names: A name for each class; default: the names that the model was loaded with.
        metadata: Further plain values to store in the file, such as the epoch, the accuracy or the recipe.
    """
    plain = unwrapped(model)
    pretrained_cfg = getattr(plain, "pretrained_cfg", {})
    if class_names is None:
        known = pretrained_cfg.get("label_names")
        class_names = known if known and len(known) == plain.num_classes else None
    elif len(class_names) != plain.num_classes:
        raise ValueError(f"{len(class_names)} class names were given for a model of {plain.num_classes} classes")
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in plain.state_dict().items()}
    from ... import __version__

    description = {
        "format": FORMAT,
        "tustin": __version__,
        "task": plain.task,
        "architecture": pretrained_cfg.get("architecture"),
        "discretization": plain.config["discretization"],
        "config": plain.config,
        "data": {name: pretrained_cfg[name] for name in DATA if pretrained_cfg.get(name) is not None},
        "class_names": None if class_names is None else list(class_names),
        "metadata": dict(metadata or {}),
        **recorded_origin(plain.config["discretization"]),
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


def load(path: str | Path, *, allow_other_discretization: bool = False, **overrides: Any) -> Any:
    """Build the model that a file of `save` holds, in evaluation mode: a VisionMamba, or the model of another task.

    Args:
        path: The file; a folder that contains one, such as a run; or a repository of the Hugging Face hub,
            "hf-hub:owner/name".
        allow_other_discretization: Accept a `discretization=` other than the one the weights were trained with.
        overrides: Arguments of VisionMamba that replace those in the file: `backend`, `drop_path_rate`, and for
            classification also `img_size` and `num_classes`, which gives a new head.
    """
    weights = read(download(str(path)) if str(path).startswith(PREFIX) else path)
    told = _description_of(weights)
    config = told["config"]
    wanted = overrides.get("discretization", config["discretization"])
    check_discretization(wanted, weights, allow_other_discretization)
    insist_on_rule(wanted, weights)
    kind = MODELS[told["task"]]
    if kind is VisionMamba:
        vim = _build(told, config | overrides)
        vim.to(weights.tensors["pos_embed"].dtype)
        fit(vim, weights, allow_other_discretization=allow_other_discretization)
        return vim.eval()
    with torch.device("meta"):  # nothing of the size that the header says is made before the tensors agree
        skeleton = kind(_build(told, config["backbone"]), **own_arguments(config))
    insist_on_names_and_shapes(skeleton, weights.tensors, weights.source)
    _insist_on_dtypes(skeleton, weights)
    model = kind(_build(told, config["backbone"] | overrides), **own_arguments(config))
    model.load_state_dict(weights.tensors)
    return model.eval()


def load_checkpoint(
    model: nn.Module,
    source: str | Path,
    *,
    filename: str | None = None,
    entry: str | None = None,
    grid: tuple[int, int] | None = None,
    allow_other_discretization: bool = False,
    cache_dir: str | Path | None = None,
) -> LoadReport:
    """Put the weights of a file into a Vision Mamba: one of ours, an official one, or a bare state dict.

    Every name and shape must fit. Only three things are adapted, and the report says so: position embeddings are
    resampled to the model's grid, a head for another number of classes is new (with a warning), and the patch
    embedding is adapted to the number of channels. From a segmenter or detector, only the Vision Mamba is loaded.

    Args:
        model: A VisionMamba.
        source: Path of a safetensors or PyTorch file, a folder with one, or a repository of the Hugging Face hub,
            `owner/name`, also with a revision, `owner/name@v1`.
        filename: Which file of the repository; by default that of the model's `pretrained_cfg`, or the only one.
        entry: Which entry of a PyTorch file, such as "model_ema"; by default "model", "state_dict" and so on.
        grid: (height, width) in patches of the file's position embedding, if it is not square and the file does not
            say.
        allow_other_discretization: Accept weights that were trained with another rule than the model's.
        cache_dir: Folder for downloads; default: that of the Hugging Face hub.
    """
    model = plain_model(model)
    if is_repository(source):
        source = download(str(source), filename, getattr(model, "pretrained_cfg", {}), cache_dir)
    weights = read(source, entry).backbone()
    return fit(model, weights, grid=grid, allow_other_discretization=allow_other_discretization)


def describe(path: str | Path) -> dict[str, Any]:
    """The description in a file of `save`: task, architecture, discretization, config, data, class_names, metadata."""
    return _description_of(read(download(str(path)) if str(path).startswith(PREFIX) else path))


def _description_of(weights: Weights) -> dict[str, Any]:
    told = weights.description
    if told is None:
        raise CheckpointError(
            f"{weights.source} does not name its model: it was not written by tustin.save; "
            "build the model with tustin.create_model and use tustin.load_checkpoint"
        )
    return told


def _insist_on_dtypes(model: nn.Module, weights: Weights) -> None:
    try:
        check_dtypes(model, weights.tensors)
    except ValueError as error:
        raise CheckpointError(f"{weights.source} is refused: {error}") from error


def _build(told: Mapping[str, Any], config: dict[str, Any]) -> VisionMamba:
    names = told["class_names"]
    if names is not None and told["task"] == VisionMamba.task and len(names) != config["num_classes"]:
        names = None
    about = {key: tuple(value) if isinstance(value, list) else value for key, value in told["data"].items()}
    about |= {"num_classes": config["num_classes"], "label_names": names}
    if told["architecture"] is None:  # made from the class, without a name
        model: Any = VisionMamba(**config)
        model.pretrained_cfg = model.default_cfg = about
    else:
        model = timm.create_model(told["architecture"], pretrained_cfg_overlay=about, **config)
    assert isinstance(model, VisionMamba)
    return model
