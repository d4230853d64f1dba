"""What a file of `save` may say about itself. It may come from a stranger: nothing is taken that is not listed here.

The values that build a model are those of our own classes, in their ranges, and must agree with the tensors in the file
before anything of that size is made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn

from ..support.names import unknown
from ..support.ranges import Range, check

__all__ = ["DATA", "FORMAT", "check_dtypes", "check_header", "class_of", "own_arguments"]

FORMAT = 1
TASKS = {"segmentation": (".segmenter", "Segmenter"), "detection": (".detector", "Detector")}
"""Module and class of the models of other tasks than classification; their attribute `task` has the name."""
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
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
    task: str = "classification"


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
    header: dict[str, Any] = {"task": "classification", **told}  # the only one of files that do not say
    check(Header, header)
    _insist_on([field.name for field in dataclasses.fields(Header)], header, "")
    if header["task"] not in ("classification", *TASKS):
        raise ValueError(unknown("task", header["task"], ["classification", *TASKS]))
    from .vim import model_names

    if header["architecture"] not in (None, *model_names()):
        raise ValueError(unknown("architecture", header["architecture"], model_names()))
    backbone = _check_config(header)
    _check_data(header["data"], backbone)
    _check_sizes(backbone, tensors)
    return header


def class_of(task: str) -> Any:
    """The class of the models of a task other than classification; only its own module is imported."""
    module, name = TASKS[task]
    return getattr(import_module(module, __package__), name)


def own_arguments(config: Mapping[str, Any]) -> dict[str, Any]:
    """Of a model made of a Vision Mamba, what its class takes besides that."""
    return {name: value for name, value in config.items() if name not in ("backbone", "discretization")}


def _check_config(told: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the Vision Mamba."""
    from .vim import VisionMamba

    config, classes = told["config"], "num_classes"
    backbone = config
    if told["task"] != "classification":
        check(class_of(told["task"]).__init__, own_arguments(config), "config.", without=["vim"])
        _insist_on(["backbone", "discretization"], config, "config.")
        backbone = config["backbone"]
        if not isinstance(backbone, dict):
            raise ValueError(f"config.backbone must be a mapping, got {backbone!r}")
        classes = "num_classes" if told["task"] == "segmentation" else "category_ids"
    _insist_on([*NEEDED, "discretization"], backbone, "config.")
    _insist_on([classes], config, "config.")
    check(VisionMamba.__init__, backbone, "config.", without=["backend"])
    if not isinstance(backbone["img_size"], list):
        raise ValueError(f"config.img_size must be a list of 2 whole numbers, got {backbone['img_size']!r}")
    rules = told["discretization"], config["discretization"], backbone["discretization"]
    if len(set(rules)) != 1:
        raise ValueError(f"it says discretization {rules[0]!r}, but its config {rules[1]!r} and {rules[2]!r}")
    number = config[classes] if classes == "num_classes" else len(config[classes])
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
    for name in ("mean", "std"):
        if name in data and len(data[name]) not in (1, 3, channels):  # timm's own default has three
            raise ValueError(f"data.{name} has {len(data[name])} values for {channels} channels")


def _check_sizes(config: dict[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Before a model is built, whose size the header alone would decide."""
    from .vim import VisionMamba
    from .weights import insist_on_names_and_shapes

    start = next((name.removesuffix("pos_embed") for name in tensors if name.endswith("pos_embed")), "")
    inside = {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}
    layers = {name.split(".")[1] for name in inside if name.startswith("layers.")}
    if len(layers) != config["depth"]:
        raise ValueError(f"config.depth is {config['depth']}, but it holds {len(layers)} layers")
    with torch.device("meta"):  # without memory; a rule has no tensors, and may not be registered here
        skeleton = VisionMamba(**{**config, "discretization": "zoh"})
    insist_on_names_and_shapes(skeleton, inside, "it")
    check_dtypes(skeleton, inside)


def check_dtypes(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    for name, wanted in model.state_dict().items():
        dtype = tensors[name].dtype
        if dtype not in DTYPES if wanted.is_floating_point() else dtype != wanted.dtype:
            raise ValueError(f"its tensor {name} is of {dtype}")


def _insist_on(names: Sequence[str], values: Mapping[str, Any], prefix: str) -> None:
    for name in names:
        if name not in values:
            raise ValueError(f"it does not say {prefix}{name}")
