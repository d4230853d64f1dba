"""What a study is about: its data, its model and how long it trains, for the head of the report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from ..models.variants import default_cfgs
from .results import Plan
from .stats import Analysis

__all__ = ["about", "data_name"]

_TITLES = {"digits": "scikit-learn's digits", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "ade20k": "ADE20K"}


def data_name(plan: Plan) -> str:
    """The data as people call them: their name, or that of their folder."""
    name, path = plan.config.get("data.name"), plan.config.get("data.path")
    if name in _TITLES:
        return _TITLES[name]
    return (PurePath(path).name if isinstance(path, str) else "") or plan.recipe


def about(analysis: Analysis) -> dict[str, str]:
    """Data, model and training, each with its sizes as far as a run has told them."""
    plan = analysis.plan
    sizes = next((result.sizes for result in analysis.study.results if result.sizes), {})
    parts = {
        "data": [data_name(plan), *_data(sizes)],
        "model": list(_model(plan.config, sizes)),
        "training": list(_training(plan, sizes)),
        "recipe": [plan.recipe, *_changed(plan)],
    }
    return {name: ", ".join(part) for name, part in parts.items() if part}


def _data(sizes: dict[str, int]) -> Iterator[str]:
    if sizes:
        yield f"{sizes['training_samples']:,} training and {sizes['held_out_samples']:,} held-out images"
        yield f"{sizes['classes']:,} {'class' if sizes['classes'] == 1 else 'classes'}"


def _model(config: dict[str, Any], sizes: dict[str, int]) -> Iterator[str]:
    name, arguments = config.get("model.name"), config.get("model.args")
    if not isinstance(name, str):
        return
    told = ", ".join(f"{key} {value}" for key, value in arguments.items()) if isinstance(arguments, dict) else ""
    yield f"{name} with {told}" if told else name
    if sizes:
        yield f"{sizes['parameters']:,} parameters"
    side = config.get("model.img_size")
    if side is None and name in default_cfgs:
        side = default_cfgs[name].default.input_size[-1]
    if side is not None:
        yield f"images of {side} px"
    if weights := config.get("model.weights"):
        yield f"starting from {weights}"


def _training(plan: Plan, sizes: dict[str, int]) -> Iterator[str]:
    counted, length = plan.length()
    if not length:
        return
    noun = "update" if counted == "updates" else "epoch"
    amount = f"{length:,} {noun}{'' if length == 1 else 's'}"
    if sizes:
        epochs = sizes["updates"] / sizes["updates_per_epoch"]
        amount += f" ({epochs:.3g} epochs)" if plan.by_updates else f" ({sizes['updates']:,} updates)"
    batch = plan.config.get("optim.batch_size")
    yield f"{amount} with batches of {batch}" if batch else amount


def _changed(plan: Plan) -> Iterator[str]:
    if plan.settings:
        yield f"with changed settings: {', '.join(plan.settings)}"
