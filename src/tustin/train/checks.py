"""What settings may be: each of its kind and in its range, and none that would have no effect."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from timm.data.auto_augment import augment_and_mix_transform, auto_augment_transform, rand_augment_transform
from timm.optim import list_optimizers

from ..models import VisionMamba
from ..support.names import unknown
from ..support.ranges import check
from .tasks import DATA_SETS, TASKS

if TYPE_CHECKING:
    from .config import Config

__all__ = ["SETTING_OF", "check_config"]

SETTING_OF = {
    "discretization": "model.discretization",
    "img_size": "model.img_size",
    "drop_path_rate": "model.drop_path_rate",
    "num_classes": "data.num_classes",
    "pretrained": "model.weights",
    "checkpoint_path": "model.weights",
    "allow_other_discretization": "model.allow_other_discretization",
}
"""Arguments of a model that are settings by themselves, so that `model.args` may not hold them as well."""


def check_config(config: Config) -> None:
    """Raise a sentence that names the setting, what it was and what was expected."""
    for name, part in _parts(config):
        values = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
        check(type(part), values, name)
    _check_arguments(config.model.args)
    _check_effect(config)
    _check_names(config)
    for name, part in _own_settings(config):
        if part.min_scale > part.max_scale:
            raise ValueError(f"{name}.min_scale {part.min_scale} is above {name}.max_scale {part.max_scale}")


def _parts(config: Config) -> Iterator[tuple[str, Any]]:
    """The groups of settings by the prefix of their names, and the settings of no group."""
    yield "", config
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield f"{field.name}.", value


def _own_settings(config: Config) -> Iterator[tuple[str, Any]]:
    """The settings of each task that has some, by its name."""
    for name, kind in TASKS.items():
        if kind.settings:
            yield name, getattr(config, name)


def _check_arguments(arguments: Mapping[str, Any]) -> None:
    for name in arguments:
        if setting := SETTING_OF.get(name):
            raise ValueError(f"model.args must not contain {name!r}: use the setting {setting}")
    check(VisionMamba.__init__, arguments, "model.args.", without=SETTING_OF)


def _check_effect(config: Config) -> None:
    """A setting that the data or the task do not read must not look as if it had an effect."""
    data = config.data.name
    for prefix, part, read in (
        ("data", config.data, {"name", *DATA_SETS[data].settings}),
        ("augment", config.augment, DATA_SETS[data].augment),
    ):
        usual = dataclasses.asdict(type(part)())
        if data == "digits":
            usual |= {"crop": "none", "flip": 0}
        for field in dataclasses.fields(part):
            if field.name not in read:
                _insist(f"{prefix}.{field.name}", getattr(part, field.name), usual[field.name], data)
    for task, part in _own_settings(config):
        if config.task != task:
            for name, value in dataclasses.asdict(type(part)()).items():
                _insist(f"{task}.{name}", getattr(part, name), value, config.task)
    if not TASKS[config.task].smooths_labels:
        _insist("optim.smoothing", config.optim.smoothing, type(config.optim)().smoothing, config.task)
    if config.augment.auto is not None:
        _insist("augment.color_jitter", config.augment.color_jitter, 0, "images with augment.auto")


def _insist(name: str, value: object, usual: object, where: str) -> None:
    if value != usual:
        wanted, got = (json.dumps(one).strip('"') for one in (usual, value))  # as a recipe has it
        raise ValueError(f"{name} has no effect on {where}: it must be {wanted}, got {got}")


def _check_names(config: Config) -> None:
    """Names that timm would refuse with an assertion, or take for something else."""
    known = [str(name) for name in list_optimizers()]
    if config.optim.name not in known:
        raise ValueError(unknown("optimizer (optim.name)", config.optim.name, known))
    auto = config.augment.auto
    if auto is not None and not _is_policy(auto):
        raise ValueError(f"augment.auto must be a policy of timm such as rand-m9-mstd0.5-inc1, got {auto!r}")


def _is_policy(name: str) -> bool:
    makers = {"rand": rand_augment_transform, "augmix": augment_and_mix_transform}
    maker = makers.get(name.split("-")[0], auto_augment_transform)
    try:
        maker(name, {})
    except Exception:  # it asserts, looks up and converts what the name says
        return False
    return True
