"""Weights from files and from the Hugging Face hub, made to fit a model or refused with a sentence.

Nothing a file contains is ever executed: safetensors holds numbers only, and a pickle is read by PyTorch's restricted
reader (`weights_only=True`).
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import math
import pickle
import re
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from timm.models import adapt_input_conv, clean_state_dict
from timm.utils.model import unwrap_model
from torch import Tensor, nn

from .header import check_header
from .tokens import resample_pos_embed

if TYPE_CHECKING:
    from .vim import VisionMamba

__all__ = [
    "CheckpointError",
    "LoadReport",
    "Weights",
    "check_discretization",
    "digest",
    "fit",
    "insist_on_names_and_shapes",
    "load_checkpoint",
    "plain_model",
    "read",
    "unwrapped",
]

OFFICIAL = "mamba"
"""What the official weights were trained with. A file that does not say is taken for one of them."""

ENTRIES = ("model", "state_dict", "model_ema", "state_dict_ema")
"""Where training scripts keep the weights, in the order of preference."""

_ENDINGS = (".safetensors", ".pth", ".pt", ".bin")


class CheckpointError(ValueError):
    """A file that cannot be read, or that does not fit the model."""


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


@dataclass(frozen=True)
class LoadReport:
    """What came from where, and what had to change on the way."""

    source: str
    discretization: str
    """The rule that the weights were trained with."""
    changes: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([f"loaded {self.source}, trained with {self.discretization!r}", *self.changes])


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
    resampled to the model's grid, a head for another number of classes starts anew (with a warning), and the patch
    embedding follows the number of channels. Of a segmenter or detector, the weights of its Vision Mamba are taken.

    Args:
        model: A VisionMamba.
        source: Path of a safetensors or PyTorch file, or a repository of the Hugging Face hub, `owner/name`.
        filename: Which file of the repository; by default that of the model's `pretrained_cfg`, or the only one.
        entry: Which entry of a PyTorch file, "model_ema" say; by default the first of "model", "state_dict", and so on.
        grid: (height, width) in patches of the file's position embedding, where it is not square and does not say.
        allow_other_discretization: Accept weights that were trained with another rule than the model's.
        cache_dir: Where downloads are kept; by default where the Hugging Face hub keeps them.
    """
    model = plain_model(model)
    path = Path(source)
    if not path.exists() and re.fullmatch(r"[\w.-]+/[\w.-]+", str(source)) and path.suffix not in _ENDINGS:
        path = _download(str(source), filename, getattr(model, "pretrained_cfg", {}), cache_dir)
    weights = read(path, entry).backbone()
    return fit(model, weights, grid=grid, allow_other_discretization=allow_other_discretization)


def unwrapped(model: nn.Module) -> Any:
    """A VisionMamba, or a model made of one, inside the wrappers of compilation and distributed training."""
    model = unwrap_model(model)
    if not hasattr(model, "config"):
        raise ValueError(f"expected a VisionMamba, got {type(model).__name__}")
    return model


def plain_model(model: nn.Module) -> VisionMamba:
    """The same, for a VisionMamba only."""
    model = unwrapped(model)
    if not hasattr(model, "patch_embed"):
        raise ValueError(f"expected a VisionMamba, got {type(model).__name__}")
    return model  # type: ignore[return-value]


# --- reading ----------------------------------------------------------------------------------------------------------


def read(path: str | Path, entry: str | None = None) -> Weights:
    """The tensors of a safetensors or PyTorch file, on the CPU; its content decides which of the two it is."""
    path = Path(path)
    with path.open("rb") as file:
        start = file.read(9)  # of safetensors: the length of the header in eight bytes, then the header, which is JSON
    if start.startswith((b"PK\x03\x04", b"\x80")) and start[8:] != b"{":  # a zip archive, or a pickle by itself
        return Weights(str(path), _read_torch(path, entry))
    return _read_safetensors(path)


def _read_safetensors(path: Path) -> Weights:
    try:
        with safe_open(path, framework="pt") as file:
            told = (file.metadata() or {}).get("tustin")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        description = json.loads(told) if told else None
    except (SafetensorError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is truncated, corrupted or not a checkpoint: {_one_line(error)} (nothing was loaded)"
        ) from error
    if description is not None:
        try:
            description = check_header(description, tensors)
        except ValueError as error:
            raise CheckpointError(f"{path} is refused for what its header says: {error}") from error
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
            f"{path} is truncated or corrupted: {_one_line(error)} (nothing of it was executed)"
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


def _download(
    repository: str, filename: str | None, pretrained_cfg: Mapping[str, Any], cache_dir: str | Path | None
) -> Path:
    import huggingface_hub

    if filename is None and pretrained_cfg.get("hf_hub_id") == repository:
        filename = pretrained_cfg.get("hf_hub_filename")
    try:
        if filename is None:
            filename = _only_file(repository, huggingface_hub.list_repo_files(repository))
        return Path(huggingface_hub.hf_hub_download(repository, filename, cache_dir=cache_dir))
    except CheckpointError:
        raise
    except Exception as error:  # no network, no such repository, a full disk: the library has no common ancestor
        raise CheckpointError(
            f"there is no file {repository!r}, and the Hugging Face hub did not give it "
            f"({type(error).__name__}: {_one_line(error)}); without a network, give the path of a downloaded file"
        ) from error


def _only_file(repository: str, files: Sequence[str]) -> str:
    for endings in ((".safetensors",), _ENDINGS):
        found = [name for name in files if name.endswith(endings)]
        if len(found) == 1:
            return found[0]
        if found:
            raise CheckpointError(f"{repository} has several checkpoints, choose one by filename=: {', '.join(found)}")
    raise CheckpointError(f"{repository} has no file that ends in {', '.join(_ENDINGS)}")


def _one_line(error: Exception) -> str:
    """The first sentence of a message that may be a page."""
    text = " ".join(str(error).split()) or type(error).__name__
    return re.split(r"(?<=[^.])\.\s", text)[0][:160].rstrip(".")


# --- fitting ----------------------------------------------------------------------------------------------------------


def fit(
    model: VisionMamba,
    weights: Weights,
    *,
    grid: tuple[int, int] | None = None,
    allow_other_discretization: bool = False,
) -> LoadReport:
    """Load the weights, adapted where they may be; the model is untouched if they do not fit."""
    trained_with = check_discretization(model.config["discretization"], weights, allow_other_discretization)
    state, changes = dict(weights.tensors), []
    if trained_with != model.config["discretization"]:
        changes.append(f"trained with {trained_with!r}, but the model runs with {model.config['discretization']!r}")
    changes += _adapt_channels(model, state)
    changes += _adapt_positions(model, state, weights, grid)
    head = _adapt_head(model, state)
    insist_on_names_and_shapes(model, state, weights.source)
    model.load_state_dict(state)
    if head and model.num_classes:
        model.reset_classifier(model.num_classes)
        warnings.warn(f"{weights.source}: {head[0]}", stacklevel=3)
    changes += head
    return LoadReport(weights.source, trained_with, tuple(changes))


def check_discretization(wanted: str, weights: Weights, allow_other: bool) -> str:
    """The rule that the weights were trained with, if it is the wanted one or another is allowed."""
    told = weights.description and weights.description["discretization"]
    trained_with = told or OFFICIAL
    if wanted != trained_with and not allow_other:
        says = "was trained with" if told else "does not say how it was trained and is taken for an official file, of"
        raise CheckpointError(
            f"{weights.source} {says} discretization {trained_with!r}, but the model has {wanted!r}: build it with "
            f"discretization={trained_with!r}, or pass allow_other_discretization=True"
        )
    return str(trained_with)


def _adapt_channels(model: VisionMamba, state: dict[str, Tensor]) -> list[str]:
    weight, channels = state.get("patch_embed.proj.weight"), model.config["in_chans"]
    if weight is None or weight.ndim != 4 or weight.shape[1] != 3 or channels == 3:
        return []
    state["patch_embed.proj.weight"] = adapt_input_conv(channels, weight)
    return [f"patch embedding adapted from 3 channels to {channels}"]


def _adapt_positions(
    model: VisionMamba, state: dict[str, Tensor], weights: Weights, grid: tuple[int, int] | None
) -> list[str]:
    positions, wanted = state.get("pos_embed"), model.patch_embed.grid_size
    if positions is None or positions.ndim != 3:
        return []
    old = grid or _grid_of(weights, positions.shape[1] - 1, wanted)
    if old == wanted:
        return []
    state["pos_embed"] = resample_pos_embed(positions, old, wanted)
    return [f"position embeddings resampled from {old[0]} x {old[1]} patches to {wanted[0]} x {wanted[1]}"]


def _grid_of(weights: Weights, patches: int, wanted: tuple[int, int]) -> tuple[int, int]:
    """The grid of the file's patches: as it says itself, or the square one."""
    if weights.description:
        config = weights.description["config"]
        height, width = ((side - config["patch_size"]) // config["stride"] + 1 for side in config["img_size"])
        return height, width
    side = math.isqrt(patches)
    square, same = side * side == patches, patches == wanted[0] * wanted[1]
    if square and (not same or wanted == (side, side)):
        return side, side
    if same and not square:
        return wanted
    raise CheckpointError(
        f"{weights.source} has position embeddings for {patches} patches and does not say in which grid; "
        "pass grid=(height, width) in patches"
    )


def _adapt_head(model: VisionMamba, state: dict[str, Tensor]) -> list[str]:
    """Where the number of classes differs, the state gets the model's own head, for `fit` to make anew."""
    weight = state.get("head.weight")
    old, new = 0 if weight is None else weight.shape[0], model.num_classes
    if old == new:
        return []
    own = {f"head.{name}": tensor for name, tensor in model.head.state_dict().items()}
    for name in ("head.weight", "head.bias"):
        state.pop(name, None)
    state |= own
    return [f"the head starts anew: {old} classes in the file, {new} in the model" if new else "the head is left out"]


def insist_on_names_and_shapes(model: nn.Module, state: Mapping[str, Tensor], source: str) -> None:
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    missing = [name for name in expected if name not in state]
    unexpected = [name for name in state if name not in expected]
    misshapen = [
        f"{name} is {tuple(state[name].shape)} in the file, {shape} in the model"
        for name, shape in expected.items()
        if name in state and tuple(state[name].shape) != shape
    ]
    if not missing and not unexpected and not misshapen:
        return

    def with_nearest(name: str) -> str:
        near = difflib.get_close_matches(name, unexpected, n=1, cutoff=0.8)
        return f"{name} (the file has {near[0]})" if near else name

    lines = [
        f"  {what}, {len(names)} of them: {'; '.join(names[:4])}{'; …' if len(names) > 4 else ''}"
        for what, names in (
            ("missing", [*map(with_nearest, missing[:4]), *missing[4:]]),
            ("unexpected", unexpected),
            ("other shape", misshapen),
        )
        if names
    ]
    raise CheckpointError("\n".join([f"{source} does not fit the model (nothing was loaded)", *lines]))
