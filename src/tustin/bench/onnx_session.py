"""What is timed of exported models: a call of onnxruntime, on the file that `tustin export` writes."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..export.description import INPUT
from ..export.graph import recorded, to_onnx


def make_call(model: nn.Module, images: Tensor, threads: int) -> Callable[[], object]:
    """One call, ready to be timed."""
    session, arrays = _session(model, tuple(images.shape[2:]), threads), {INPUT: images.numpy()}
    return lambda: session.run(None, arrays)


@functools.cache  # by identity: a model of a candidate and a size is made once
def _session(model: nn.Module, size: tuple[int, int], threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.force_spinning_stop", "1")  # its threads would slow whoever is next
    return onnxruntime.InferenceSession(_content(model, size), options, providers=["CPUExecutionProvider"])


@functools.cache
def _content(model: nn.Module, size: tuple[int, int]) -> bytes:
    """The file; a model that is not ours becomes what PyTorch's exporter makes of it."""
    if not hasattr(model, "task"):
        peer: bytes = recorded(model.eval(), Tensor(2, 3, *size).zero_()).model_proto.SerializeToString()
        return peer
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        to_onnx(model, path, check=False)
        return path.read_bytes()
