"""A classifier in a file of `tustin export`, run by onnxruntime: neither PyTorch nor the model's code is needed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from PIL import Image

from ..support.files import insist_on_file
from ..support.ranges import Range, check
from .preparation import prepare

__all__ = ["OnnxClassifier", "is_onnx"]

_TEXTS = ("tustin", "task", "architecture", "discretization", "interpolation", "crop_mode")
_SILENT = 4


@dataclass
class Facts:
    """What the file says about itself; it may come from a stranger."""

    discretization: str
    num_classes: Annotated[int, Range(0, 2**24)]
    class_names: Sequence[str] | None
    input_size: Sequence[Annotated[int, Range(1, 2**16)]]
    mean: Sequence[Annotated[float, Range(-1000, 1000)]]
    std: Sequence[Annotated[float, Range(0, 1000, above=True)]]
    interpolation: Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]
    crop_pct: Annotated[float, Range(0.05, 1)]
    crop_mode: Literal["center", "squash", "border"]


def is_onnx(path: Path) -> bool:
    """Whether a file shall be read as ONNX: by its name, because a protobuf has no mark."""
    return path.suffix.lower() == ".onnx"


class OnnxClassifier:
    """What `tustin predict` needs of a classifier."""

    task = "classification"

    def __init__(self, path: Path) -> None:
        if find_spec("onnxruntime") is None:
            raise RuntimeError(f"running {path} needs onnxruntime: pip install 'tustin[onnx]'")
        import onnxruntime

        insist_on_file(path)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = _SILENT  # what it says reaches the user as one sentence
        try:  # from memory: no other file that it names is opened
            content = path.read_bytes()
            self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # a damaged file can fail in any way
            raise ValueError(f"{path} is damaged or not an ONNX file: onnxruntime cannot load it") from error
        self.facts = _facts(path, self._session.get_modelmeta().custom_metadata_map)
        self.discretization: str = self.facts["discretization"]
        self.num_classes: int = self.facts["num_classes"]
        self.names: list[str] | None = self.facts["class_names"]
        self.channels: int = self.facts["input_size"][0]

    def prepare(self, image: Image.Image) -> Any:
        return prepare(image, self.facts)

    def probabilities(self, images: Sequence[Any]) -> Any:
        """(images, classes)."""
        name = self._session.get_inputs()[0].name
        [logits, *_] = self._session.run(None, {name: np.stack(images)})
        shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return shifted / shifted.sum(axis=-1, keepdims=True)


def _facts(path: Path, told: dict[str, str]) -> dict[str, Any]:
    if "tustin" not in told or "task" not in told:
        raise ValueError(f"{path} does not say how images are prepared: it was not written by 'tustin export'")
    if told["task"] != OnnxClassifier.task:
        raise ValueError(
            f"{path} is a model for {told['task']}; 'tustin predict' runs ONNX files of classifiers only, and "
            "checkpoints of all tasks"
        )
    try:
        facts = {name: value if name in _TEXTS else json.loads(value) for name, value in told.items()}
        wanted = Facts.__dataclass_fields__
        if missing := [name for name in wanted if name not in facts]:
            raise ValueError(f"it does not say {missing[0]}")
        facts = {name: facts[name] for name in wanted}
        check(Facts, facts)
        if len(facts["input_size"]) != 3:
            raise ValueError(f"input_size must be channels, height and width, got {facts['input_size']}")
        for name in ("mean", "std"):
            if len(facts[name]) not in (1, facts["input_size"][0]):
                raise ValueError(f"{name} has {len(facts[name])} values for {facts['input_size'][0]} channels")
        if facts["class_names"] is not None and len(facts["class_names"]) != facts["num_classes"]:
            raise ValueError(f"it has {len(facts['class_names'])} class names for {facts['num_classes']} classes")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is refused for what its metadata say: {error}") from error
    return facts
