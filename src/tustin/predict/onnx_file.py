"""A model in a file of `tustin export`, run by onnxruntime: neither PyTorch nor the model's code is needed."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ..support.files import insist_on_file
from ..support.masks import Pixels, starts
from .onnx_facts import read_facts
from .preparation import prepare, prepare_whole
from .resampling import largest

__all__ = ["OnnxClassifier", "OnnxSegmenter", "is_onnx", "open_onnx"]

_SILENT = 4


def is_onnx(path: Path) -> bool:
    """Whether a file shall be read as ONNX: by its name, because a protobuf has no mark."""
    return path.suffix.lower() == ".onnx"


def open_onnx(path: Path) -> OnnxClassifier | OnnxSegmenter:
    """The model in a file, whatever its task."""
    if find_spec("onnxruntime") is None:
        raise RuntimeError(f"running {path} needs onnxruntime: pip install 'tustin[onnx]'")
    import onnxruntime

    insist_on_file(path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _SILENT  # what it says reaches the user as one sentence
    try:  # from memory: no other file that it names is opened
        session = onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # a damaged file can fail in any way
        raise ValueError(f"{path} is damaged or not an ONNX file: onnxruntime cannot load it") from error
    task, facts = read_facts(path, session.get_modelmeta().custom_metadata_map)
    kind = OnnxClassifier if task == OnnxClassifier.task else OnnxSegmenter
    return kind(path, session, facts)


class _OnnxModel:
    """What the models of all tasks share."""

    def __init__(self, path: Path, session: Any, facts: dict[str, Any]) -> None:
        self._path, self._session, self.facts = path, session, facts
        self.discretization: str = facts["discretization"]
        self.num_classes: int = facts["num_classes"]
        self.names: list[str] | None = facts["class_names"]
        self.channels: int = facts["input_size"][0]

    def _logits(self, images: Pixels, per_image: tuple[int, ...]) -> Pixels:
        """Of each image an array of this shape."""
        try:
            [logits, *_] = self._session.run(None, {self._session.get_inputs()[0].name: images})
        except Exception as error:  # a file of a stranger can fail in any way
            shape = "x".join(map(str, images.shape))
            raise ValueError(f"{self._path} fails in onnxruntime on images of {shape}") from error
        expected = (len(images), *per_image)
        if np.shape(logits) != expected:
            raise ValueError(f"{self._path} returns an array of {np.shape(logits)}, expected {expected}")
        result: Pixels = logits
        return result


class OnnxClassifier(_OnnxModel):
    """What `tustin predict` needs of a classifier."""

    task = "classification"

    def prepare(self, image: Image.Image) -> Any:
        return prepare(image, self.facts)

    def probabilities(self, images: Sequence[Any]) -> Any:
        """(images, classes)."""
        logits = self._logits(np.stack(images), (self.num_classes,))
        shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return shifted / shifted.sum(axis=-1, keepdims=True)


class OnnxSegmenter(_OnnxModel):
    """What `tustin predict` needs of a segmenter."""

    task = "segmentation"

    @property
    def unlabelled(self) -> int:
        value: int = self.facts["unlabelled"]
        return value

    def segment(self, image: Image.Image) -> Pixels:
        """The class of every pixel (height, width), as `Segmenter.segment` finds it."""
        pixels = prepare_whole(image, self.facts)
        height, width = pixels.shape[1:]
        side, stride = max(height, width), max(height, width)
        if self.facts["window"] == "slide":
            side, stride = self.facts["input_size"][1], self.facts["window_stride"]
        self._insist_on_size(image, min(side, height), min(side, width))
        total, seen = np.zeros((self.num_classes, height, width), np.float32), np.zeros((height, width), np.float32)
        for top in starts(height, side, stride):
            for left in starts(width, side, stride):
                place = slice(top, top + side), slice(left, left + side)
                window = np.ascontiguousarray(pixels[None, :, *place])
                total[:, *place] += self._logits(window, (self.num_classes, *window.shape[2:]))[0]
                seen[place] += 1
        return largest(total / seen, (image.height, image.width))

    def _insist_on_size(self, image: Image.Image, height: int, width: int) -> None:
        """A file without a dynamic size reads one size only; another size of the image would give other classes."""
        own = tuple(self.facts["input_size"][1:])
        if not self.facts["dynamic_size"] and (height, width) != own:
            raise ValueError(
                f"{self._path} accepts only {own[1]} x {own[0]} pixels, but the image of {image.width} x "
                f"{image.height} is resized to {width} x {height}: export the model with --dynamic-size"
            )
