"""A model as a program of torch.export: one .pt2 file that runs where tustin is installed, without the model's code."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..support.files import replacing, writable
from .description import describe_for_export, dynamic_shapes, prepared, samples
from .graph import insist_on_same_results

__all__ = ["FACTS", "to_torch"]

FACTS = "tustin.json"
"""The name under which the file says what it is: `torch.export.load(path, extra_files={FACTS: ""})`."""


def to_torch(
    model: Any,
    path: str | Path,
    *,
    dynamic_size: bool = False,
    check: bool = True,
    trained_with: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write `model` as a program of `torch.export` whose scans are our operators; arguments as in `export`."""
    writable(Path(path))
    model = prepared(model)
    about = json.dumps(describe_for_export(model, dynamic_size, trained_with))
    images = samples(model, dynamic_size)[0]
    with torch.no_grad():
        program = torch.export.export(model, (images,), dynamic_shapes=dynamic_shapes(dynamic_size))
    written = io.BytesIO()
    torch.export.save(program, written, extra_files={FACTS: about})
    content = written.getvalue()
    error = _largest_difference(model, content, dynamic_size) if check else None
    with replacing(path) as file:
        file.write(content)
    nodes = len(program.graph.nodes)
    return {"file": str(path), "format": "torch", "nodes": nodes, "bytes": len(content), "largest_error": error}


def _largest_difference(model: Any, content: bytes, dynamic_size: bool) -> float:
    run: Any = torch.export.load(io.BytesIO(content)).module()

    def infer(images: Tensor) -> Tensor:
        with torch.inference_mode():
            result: Tensor = run(images)
        return result

    return insist_on_same_results(model, infer, dynamic_size, "the exported program")
