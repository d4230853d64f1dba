"""Weights made to fit a Vision Mamba, or refused with a sentence: its rule, its channels, its grid and its head."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

from timm.models import adapt_input_conv
from torch import Tensor

from ...discretize import DISCRETIZATIONS, origin_of
from ...discretize.own import shown
from ..tokens import resample_pos_embed
from ..vision_mamba import VisionMamba
from .matching import CheckpointError, insist_on_names_and_shapes
from .reading import Weights

__all__ = ["LoadReport", "check_discretization", "fit", "insist_on_rule"]

OFFICIAL = "mamba"
"""What the official weights were trained with. A file that does not say is taken for one of them."""


@dataclass(frozen=True)
class LoadReport:
    """What `load_checkpoint` did: the source of the weights, their rule, and every adaptation."""

    source: str
    discretization: str
    """The rule that the weights were trained with."""
    changes: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([f"loaded {self.source}, trained with {self.discretization!r}", *self.changes])


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
        changes += _adapt_mix(model, state)
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
    recorded, own = _recorded_rule(weights), origin_of(trained_with)
    if recorded and own and own.sha256 != recorded["sha256"] and not allow_other:
        raise CheckpointError(
            f"{weights.source} was trained with {trained_with!r} from {shown(recorded)}, not "
            f"from {shown(own.as_facts())}: import the file of the training, or pass allow_other_discretization=True"
        )
    return str(trained_with)


def insist_on_rule(wanted: str, weights: Weights) -> None:
    """A rule that is not registered is never looked for: whoever has its file, and trusts it, has to name it."""
    recorded = _recorded_rule(weights)
    if wanted not in DISCRETIZATIONS and recorded:
        raise CheckpointError(
            f"{weights.source} needs the rule {wanted!r} from {shown(recorded)}: if you have this file and trust it, "
            "name it with --import FILE, or import it with tustin.discretize.import_rules(FILE)"
        )


def _recorded_rule(weights: Weights) -> dict[str, str] | None:
    """File and digest of a rule that is not built in, as the file says; for comparing, and for people."""
    recorded: dict[str, str] | None = weights.description and weights.description["rule"]
    return recorded


def _adapt_mix(model: VisionMamba, state: dict[str, Tensor]) -> list[str]:
    """Projections to λ are learned with a rule that has one, and with no other."""
    own = {name: tensor for name, tensor in model.state_dict().items() if ".mix_proj" in name}
    theirs = [name for name in state if ".mix_proj" in name]
    if bool(own) == bool(theirs):
        return []
    if own:
        state.update(own)
        return ["the projections to λ are those of the model: the file has none"]
    for name in theirs:
        del state[name]
    return ["the projections to λ were left out: the rule of the model has none"]


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
    return [
        f"the head is initialised anew: {old} classes in the file, {new} in the model"
        if new
        else "the head is left out"
    ]
