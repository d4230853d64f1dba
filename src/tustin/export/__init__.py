"""A model as a file that runs without its code: ONNX, or a program of torch.export."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .description import DYNAMIC, describe_for_export
from .graph import to_onnx
from .program import to_torch

__all__ = ["DYNAMIC", "FORMATS", "describe_for_export", "export", "to_onnx", "to_torch"]

FORMATS: dict[str, Callable[..., dict[str, Any]]] = {"onnx": to_onnx, "torch": to_torch}
"""The formats, and the function that writes each of them."""


def export(
    model: Any,
    path: str | Path,
    to: str = "onnx",
    *,
    dynamic_size: bool = False,
    check: bool = True,
    trained_with: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write `model` to one file, atomically, and return facts about the file.

    Args:
        model: A classifier or a segmenter, as `tustin.load` returns it.
        path: The file.
        to: "onnx", for onnxruntime and other ONNX runtimes, or "torch", a .pt2 for `torch.export.load`.
        dynamic_size: Accept images of any size; otherwise only the size that the model is made for. The batch size is
            free.
        check: Run the exported model and raise an error if its results differ from the model's.
        trained_with: The settings of the training by their dotted names, `tustin.models.describe(path)["metadata"]
            ["config"]`. For a segmenter they say how an image is resized, and are stored in the metadata.
    """
    from ..support.names import unknown

    if to not in FORMATS:
        raise ValueError(unknown("format", to, list(FORMATS)))
    return FORMATS[to](model, path, dynamic_size=dynamic_size, check=check, trained_with=trained_with)
