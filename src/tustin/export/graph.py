"""A model as an ONNX file: PyTorch's exporter, with the translations that our operators bring, and one block in it."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..support.files import replacing, writable
from .description import INPUT, OUTPUT, describe_for_export, dynamic_shapes, prepared, samples
from .outline import outline_blocks
from .pooling import pool_by_products

__all__ = ["TOLERANCE", "recorded", "to_onnx"]

OPSET = 18
"""The oldest that has everything, so that the most runtimes can read it."""
TOLERANCE = 1e-4
"""Largest difference from the model's results, relative to the largest of these."""
_LARGEST = 2**31 - 1
"""Bytes of a protobuf."""


def to_onnx(
    model: Any,
    path: str | Path,
    *,
    dynamic_size: bool = False,
    check: bool = True,
    trained_with: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write `model` as ONNX: standard operators only, one input, one output. Arguments as in `tustin.export.export`."""
    _insist_on("onnx", "onnxscript", *(["onnxruntime"] if check else []))
    writable(Path(path))
    model = prepared(model)
    translated = _translate(model, dynamic_size, describe_for_export(model, dynamic_size, trained_with))
    content, facts = _serialized(translated)
    error = _largest_difference(model, content, dynamic_size) if check else None
    with replacing(path) as file:
        file.write(content)
    return {"file": str(path), "format": "onnx", **facts, "bytes": len(content), "largest_error": error}


def _insist_on(*packages: str) -> None:
    if missing := [name for name in packages if find_spec(name) is None]:
        hint = "; --no-check does without it" if missing == ["onnxruntime"] else ""
        raise RuntimeError(f"export to ONNX needs {' and '.join(missing)}: pip install 'tustin[onnx]'{hint}")


def _translate(model: Any, dynamic_size: bool, about: Mapping[str, Any]) -> Any:
    """The graph as `torch.onnx.export` makes it of any model with our operators, then the blocks as one function."""
    import onnx_ir.passes.common as passes

    if dynamic_size:
        model = copy.deepcopy(model)
        pool_by_products(model)
    translated = recorded(model, samples(model, dynamic_size)[0], dynamic_size).model
    outline_blocks(translated)
    for clean in (passes.RemoveUnusedNodesPass(), passes.ClearMetadataAndDocStringPass()):
        clean(translated)
    for name, value in about.items():
        translated.metadata_props[name] = value if isinstance(value, str) else json.dumps(value)
    translated.producer_name, translated.producer_version = "tustin", translated.metadata_props["tustin"]
    translated.graph.name = translated.metadata_props["architecture"]
    return translated


def recorded(model: Any, images: Tensor, dynamic_size: bool = False) -> Any:
    """Any model of images as PyTorch's exporter translates it, for any number of them."""
    with _quietly(), torch.no_grad():
        program = torch.onnx.export(
            model,
            (images,),
            dynamic_shapes=dynamic_shapes(dynamic_size),
            input_names=[INPUT],
            output_names=[OUTPUT],
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    return program


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """The exporter tells of its own deprecations, and of what it does not fold."""
    loggers = [logging.getLogger(name) for name in ("onnxscript", "torch.onnx", "onnx_ir")]
    before = [logger.level for logger in loggers]
    with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, before, strict=True):
                logger.setLevel(level)


def _serialized(translated: Any) -> tuple[bytes, dict[str, Any]]:
    """The bytes of the file, and what it consists of."""
    import onnx
    import onnx_ir as ir

    parameters = sum(value.const_value.nbytes for value in translated.graph.initializers.values())
    if parameters > _LARGEST:
        raise ValueError(f"the weights are {parameters / 1e9:.1f} GB, but an ONNX file holds at most 2 GB")
    proto = ir.to_proto(translated)
    onnx.checker.check_model(proto)
    functions = list(translated.functions.values())
    facts = {
        "opset": translated.opset_imports[""],
        "nodes": len(list(translated.graph.all_nodes())) + sum(len(list(f.all_nodes())) for f in functions),
        "blocks": sum(node.domain == function.domain for function in functions for node in translated.graph),
    }
    content: bytes = proto.SerializeToString(deterministic=True)
    return content, facts


def _largest_difference(model: Any, content: bytes, dynamic_size: bool) -> float:
    """Run the file in onnxruntime on random images; RuntimeError if a result is not the model's."""
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])

    def run(images: Tensor) -> Tensor:
        [result] = session.run([OUTPUT], {INPUT: images.numpy()})
        return torch.from_numpy(result)

    return insist_on_same_results(model, run, dynamic_size, "onnxruntime")


def insist_on_same_results(model: Any, run: Callable[[Tensor], Tensor], dynamic_size: bool, who: str) -> float:
    """The largest difference between `run` and the model on random images, relative to the largest result."""
    largest = 0.0
    for images in samples(model, dynamic_size):
        with torch.inference_mode():
            expected = model(images)
        found = run(images)
        shape = "x".join(map(str, images.shape))
        if found.shape != expected.shape:
            raise RuntimeError(
                f"the file is not written: {who} returns {tuple(found.shape)} for images of {shape}, expected "
                f"{tuple(expected.shape)}"
            )
        if not expected.isfinite().all():
            raise RuntimeError(
                f"the file is not written: for images of {shape} the model itself gives numbers that are not finite; "
                "a shorter step or a stable discretization may help, and --no-check writes it"
            )
        difference = float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-30))
        if not difference <= TOLERANCE:
            raise RuntimeError(
                f"the file is not written: for images of {shape} {who} differs from the model by {difference:.1e} of "
                f"the largest result, expected at most {TOLERANCE:.0e}"
            )
        largest = max(largest, difference)
    return largest
