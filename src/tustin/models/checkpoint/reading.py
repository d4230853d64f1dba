"""The tensors of a safetensors or PyTorch file, and what a file of ours says about itself.

Nothing a file contains is ever executed: safetensors holds numbers only, and a pickle is read by PyTorch's restricted
reader (`weights_only=True`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pickle
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from timm.models import clean_state_dict
from torch import Tensor

from ...support.files import read_json
from .header import check_header, from_timm
from .matching import CheckpointError

__all__ = ["Weights", "digest", "find", "one_line", "read"]

IN_FOLDERS = ("best.safetensors", "model.safetensors", "pytorch_model.bin")
"""The checkpoint of a folder: that of a run, or one written for the Hugging Face hub, by us or by timm."""

ENTRIES = ("model", "state_dict", "model_ema", "state_dict_ema")
"""Where training scripts keep the weights, in the order of preference."""


@dataclass(frozen=True)
class Weights:
    """What is in a file: the tensors by name, and what a file of ours says about itself."""

    source: str
    tensors: dict[str, Tensor]
    description: dict[str, Any] | None = None

    def backbone(self) -> Weights:
        """Of a model made of a Vision Mamba and heads, the Vision Mamba; of others, all."""
        if self.description is None or "backbone" not in self.description["config"]:
            return self
        prefix = next(name for name in self.tensors if name.endswith("pos_embed")).removesuffix("pos_embed")
        inside = {name.removeprefix(prefix): t for name, t in self.tensors.items() if name.startswith(prefix)}
        return Weights(self.source, inside, {**self.description, "config": self.description["config"]["backbone"]})


def find(path: str | Path) -> Path:
    """The file, or of a folder its checkpoint."""
    path = Path(path)
    if not path.is_dir():
        return path
    for name in IN_FOLDERS:
        if (path / name).is_file():
            return path / name
    there = sorted(file.name for file in path.iterdir() if file.suffix in (".safetensors", ".pth", ".pt", ".bin"))
    held = f"it holds {', '.join(there[:6])}" if there else "it holds none"
    raise CheckpointError(f"the folder {str(path)!r} has no checkpoint called {' or '.join(IN_FOLDERS)}; {held}")


def read(path: str | Path, entry: str | None = None) -> Weights:
    """The tensors of a safetensors or PyTorch file, on the CPU; its content decides which of the two it is.

    Of a folder, its checkpoint. One that timm wrote says nothing about itself, but a config.json beside it does.
    """
    path = find(path)
    with path.open("rb") as file:
        start = file.read(9)  # of safetensors: the length of the header in eight bytes, then the header, which is JSON
    if start.startswith((b"PK\x03\x04", b"\x80")) and start[8:] != b"{":  # a zip archive, or a pickle by itself
        weights = Weights(str(path), _read_torch(path, entry))
    else:
        weights = _read_safetensors(path)
    if weights.description is None and path.name in IN_FOLDERS:
        return replace(weights, description=_told_by_timm(path.with_name("config.json"), weights.tensors))
    return weights


def _told_by_timm(path: Path, tensors: dict[str, Tensor]) -> dict[str, Any] | None:
    """What a header of ours would say; None if the file does not say which rule the model has."""
    if not path.is_file():
        return None
    try:
        told = from_timm(read_json(path))
        return check_header({**told, "sha256": digest(tensors)}, tensors) if told else None
    except ValueError as error:
        raise CheckpointError(f"{path} is refused: {error}") from error


def _read_safetensors(path: Path) -> Weights:
    try:
        with safe_open(path, framework="pt") as file:
            told = (file.metadata() or {}).get("tustin")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        description = json.loads(told) if told else None
    except (SafetensorError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is truncated, corrupted or not a checkpoint: {one_line(error)} (nothing was loaded)"
        ) from error
    if description is not None:
        try:
            description = check_header(description, tensors)
        except ValueError as error:
            raise CheckpointError(f"{path} is refused because of its header: {error}") from error
        if description["sha256"] != digest(tensors):
            raise CheckpointError(f"{path} is corrupted: its tensors do not match its checksum (nothing was loaded)")
    return Weights(str(path), tensors, description)


def _read_torch(path: Path, entry: str | None) -> dict[str, Tensor]:
    try:
        if zipfile.is_zipfile(path):  # PyTorch does not look at its own checksums
            with zipfile.ZipFile(path) as archive:
                if damaged := archive.testzip():
                    raise CheckpointError(f"{path} is corrupted: {damaged} in it does not match its checksum")
        # The official files carry the arguments of their training, which is a Namespace: attributes and nothing else.
        with torch.serialization.safe_globals([argparse.Namespace]):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        wants = re.search(r"GLOBAL (\S+)", str(error))
        reason = f"it asks for {wants[1]}, which is code" if wants else "it is corrupted, or would run code"
        raise CheckpointError(f"{path} is refused: {reason}; nothing of it was executed") from error
    except CheckpointError:
        raise
    except Exception as error:  # a damaged pickle can fail in any way
        raise CheckpointError(
            f"{path} is truncated or corrupted: {one_line(error)} (nothing of it was executed)"
        ) from error
    state = _entry_of(content, entry, path)
    return clean_state_dict(state)


def _entry_of(content: object, entry: str | None, path: Path) -> dict[str, Tensor]:
    def is_state(value: object) -> bool:
        return isinstance(value, Mapping) and bool(value) and all(isinstance(v, Tensor) for v in value.values())

    if not isinstance(content, Mapping):
        raise CheckpointError(f"{path} holds a {type(content).__name__}, not the weights of a model")
    if entry is None and is_state(content):
        return dict(content)
    for name in ENTRIES if entry is None else (entry,):
        if is_state(content.get(name)):
            return dict(content[name])
    wanted = " or ".join(map(repr, ENTRIES if entry is None else (entry,)))
    held = ", ".join(map(repr, list(content)[:6])) or "nothing"
    raise CheckpointError(f"{path} has no weights under {wanted}; it holds {held}")


def digest(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of names and values, because safetensors does not notice a flipped bit."""
    total = hashlib.sha256()
    for name in sorted(tensors):
        total.update(name.encode())
        total.update(tensors[name].detach().cpu().flatten().view(torch.uint8).numpy().data)
    return total.hexdigest()


def one_line(error: Exception) -> str:
    """The first sentence of a message that may be a page."""
    text = " ".join(str(error).split()) or type(error).__name__
    return re.split(r"(?<=[^.])\.\s", text)[0][:160].rstrip(".")
