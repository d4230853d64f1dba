"""What a file of `save` may say about itself. It may come from a stranger: nothing is taken that is not listed here.

The values that build a model are those of our own classes, in their ranges, and must agree with the tensors in the file
before anything of that size is made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from ...discretize import DISCRETIZATIONS
from ...support.names import unknown
from ...support.pictures import insist_on_pixels
from ...support.ranges import Range, check
from ..detector import Detector
from ..segmenter import Segmenter
from ..variants import model_names
from ..vision_mamba import VisionMamba
from .matching import check_dtypes, insist_on_names_and_shapes

__all__ = ["DATA", "FORMAT", "MODELS", "check_header", "from_timm", "own_arguments"]

FORMAT = 1
MODELS: dict[str, Any] = {model.task: model for model in (VisionMamba, Segmenter, Detector)}
"""The class of the models of each task; all but the first are made of a Vision Mamba and heads."""
NEEDED = ("img_size", "patch_size", "stride", "in_chans", "num_classes", "embed_dim", "depth", "d_state")
"""Arguments of a Vision Mamba that the shapes of its tensors follow from."""


@dataclass
class Header:
    """The entries of the header."""

    format: Annotated[int, Range(1)]
    tustin: str
    architecture: str | None
    discretization: str
    config: dict[str, Any]
    data: dict[str, Any]
    class_names: Sequence[str] | None
    metadata: dict[str, Any]
    sha256: str
    rule: dict[str, Any] | None = None
    task: str = "classification"


@dataclass
class Rule:
    """Where a rule that is not built in came from. It is shown and compared, and never leads to anything."""

    file: str
    sha256: str


@dataclass
class Data:
    """How images are prepared: what timm's transforms read from a model's `pretrained_cfg`."""

    input_size: Sequence[Annotated[int, Range(1, 2**16)]]
    mean: Sequence[Annotated[float, Range(-1000, 1000)]]
    std: Sequence[Annotated[float, Range(0, 1000, above=True)]]
    interpolation: Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos", "random"]
    crop_pct: Annotated[float, Range(0.05, 1)]
    crop_mode: Literal["center", "squash", "border"]


DATA = tuple(field.name for field in dataclasses.fields(Data))


def check_header(told: Any, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """The header, if `save` could have written it for these tensors; otherwise a ValueError that says why not."""
    if not isinstance(told, dict):
        raise ValueError("it must be a mapping")
    if isinstance(told.get("format"), int) and told["format"] > FORMAT:
        raise ValueError(f"it was written by a newer version, tustin {told.get('tustin')}")
    header: dict[str, Any] = {"task": "classification", "rule": None, **told}  # what files mean that do not say
    check(Header, header)
    _insist_on([field.name for field in dataclasses.fields(Header)], header, "")
    if header["rule"] is not None:
        check(Rule, header["rule"], "rule.")
        _insist_on(["file", "sha256"], header["rule"], "rule.")
    if header["task"] not in MODELS:
        raise ValueError(unknown("task", header["task"], list(MODELS)))
    if header["architecture"] not in (None, *model_names()):
        raise ValueError(unknown("architecture", header["architecture"], model_names()))
    backbone = _check_config(header)
    _check_data(header["data"], backbone)
    _check_sizes(backbone, tensors)
    return header


def from_timm(told: Any) -> dict[str, Any] | None:
    """The header, without its sum, of a model of ours that timm saved, by the config.json that it wrote."""
    about = told.get("pretrained_cfg") if isinstance(told, dict) else None
    if not isinstance(about, dict) or told.get("architecture") not in model_names():
        return None
    parts = [part for part in (about.get("model_args"), told.get("model_args")) if isinstance(part, dict)]
    config = {name: value for part in parts for name, value in part.items()}
    if "discretization" not in config:
        return None
    return {
        "format": FORMAT,
        "tustin": "",
        "architecture": told["architecture"],
        "discretization": config["discretization"],
        "config": config,
        "data": {name: about[name] for name in DATA if about.get(name) is not None},
        "class_names": told.get("label_names", about.get("label_names")),
        "metadata": {},
    }


def own_arguments(config: Mapping[str, Any]) -> dict[str, Any]:
    """Of a model made of a Vision Mamba, what its class takes besides that."""
    return {name: value for name, value in config.items() if name not in ("backbone", "discretization")}


def _check_config(told: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the Vision Mamba."""
    config, model = told["config"], MODELS[told["task"]]
    backbone = config
    if model is not VisionMamba:
        check(model.__init__, own_arguments(config), "config.", without=["vim"])
        _insist_on(["backbone", "discretization"], config, "config.")
        backbone = config["backbone"]
        if not isinstance(backbone, dict):
            raise ValueError(f"config.backbone must be a mapping, got {backbone!r}")
    _insist_on([*NEEDED, "discretization"], backbone, "config.")
    _insist_on([model.classes], config, "config.")
    check(VisionMamba.__init__, backbone, "config.", without=["backend"])
    if not isinstance(backbone["img_size"], list):
        raise ValueError(f"config.img_size must be a list of 2 whole numbers, got {backbone['img_size']!r}")
    rules = told["discretization"], config["discretization"], backbone["discretization"]
    if len(set(rules)) != 1:
        raise ValueError(f"it says discretization {rules[0]!r}, but its config {rules[1]!r} and {rules[2]!r}")
    classes = config[model.classes]
    number = classes if isinstance(classes, int) else len(classes)
    names = told["class_names"]
    if names is not None and len(names) != number:
        raise ValueError(f"it has {len(names)} class names for {number} classes")
    return dict(backbone)


def _check_data(data: dict[str, Any], backbone: Mapping[str, Any]) -> None:
    check(Data, data, "data.")
    channels = backbone["in_chans"]
    size = [channels, *backbone["img_size"]]
    if "input_size" in data and list(data["input_size"]) != size:
        raise ValueError(f"data.input_size is {data['input_size']}, but the model is made for {size}")
    insist_on_pixels(*(side / data.get("crop_pct", 1) for side in size[1:]))
    for name in ("mean", "std"):
        if name in data and len(data[name]) not in (1, 3, channels):  # timm's own default has three
            raise ValueError(f"data.{name} has {len(data[name])} values for {channels} channels")


def _check_sizes(config: dict[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Before a model is built, whose size the header alone would decide."""
    start = next((name.removesuffix("pos_embed") for name in tensors if name.endswith("pos_embed")), "")
    inside = {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}
    layers = {name.split(".")[1] for name in inside if name.startswith("layers.")}
    if len(layers) != config["depth"]:
        raise ValueError(f"config.depth is {config['depth']}, but it holds {len(layers)} layers")
    rule = config["discretization"]
    if rule not in DISCRETIZATIONS:  # all that a rule says about tensors is whether it has a λ
        rule = "exptrap" if any(".mix_proj" in name for name in tensors) else "zoh"
    with torch.device("meta"):  # without memory
        skeleton = VisionMamba(**{**config, "discretization": rule})
    insist_on_names_and_shapes(skeleton, inside, "it")
    check_dtypes(skeleton, inside)


def _insist_on(names: Sequence[str], values: Mapping[str, Any], prefix: str) -> None:
    for name in names:
        if name not in values:
            raise ValueError(f"it does not say {prefix}{name}")
