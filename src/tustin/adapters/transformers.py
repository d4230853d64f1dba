"""Hugging Face models made to use our scan: mamba, falcon_mamba, jamba and zamba."""

from __future__ import annotations

import copy
import warnings
from typing import Any, TypeVar

from torch import nn

from ..discretize import DISCRETIZATIONS, Discretization, get_discretization
from .mixers import MIXERS, Adapted, adapted_class, become, is_mixer

Model = TypeVar("Model", bound=nn.Module)

_OWN = "mamba"
"""The rule of a model whose config names none."""


def adapt(model: Model, discretization: str | Discretization | None = None) -> Model:
    """Make a Hugging Face model use our scan, convolution and one-token updates, with a rule of your choice.

    It changes only this model, in place; `restore` undoes it. The model keeps its weights, its class and its methods.
    The rule is stored in its config, so `save_pretrained` saves it. After `from_pretrained`, `adapt` without a rule
    reads it from there.

    Args:
        model: A model of transformers 5.15 or newer with mixers of the type mamba, falcon_mamba, jamba or zamba, or a
            module that contains such mixers.
        discretization: Name of a registered discretization, or a registered `Discretization`. Default: the rule in
            the model's config, or else "mamba", with which only the speed changes.

    Returns:
        The model.

    A pretrained model was trained with one rule. With another rule `adapt` warns, because the predictions are worse
    until the model is trained again.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"adapt: model must be a torch.nn.Module, got {type(model).__name__}")
    mixers = [module for module in model.modules() if is_mixer(module)]
    if not mixers:
        raise ValueError(
            f"adapt: {type(model).__name__} has no mixer that can be adapted; "
            f"expected a transformers model of the type {', '.join(MIXERS)}"
        )
    own = {_own_rule(mixer) for mixer in mixers}
    rule = get_discretization(discretization if discretization is not None else _only(own) or _OWN)
    if DISCRETIZATIONS.get(rule.name) is not rule:
        raise ValueError(
            f"adapt: discretization {rule.name!r} is not registered; register it first, "
            "because a saved model stores only the name"
        )
    classes = {mixer: adapted_class(_original(mixer), rule.name) for mixer in mixers}
    for mixer in mixers:
        own_rule = _own_rule(mixer)
        become(mixer, classes[mixer])
        mixer.own_discretization = own_rule  # type: ignore[assignment]
    _write_into_configs(model, mixers, rule.name)
    if any(rule.name != (one or _OWN) for one in own) and any(_is_pretrained(mixer) for mixer in mixers):
        warnings.warn(
            f"the model was trained with the discretization {_only(own) or _OWN!r} and now runs with {rule.name!r}: "
            "its predictions are worse until it is trained again",
            stacklevel=2,
        )
    return model


def restore(model: Model) -> Model:
    """Undo `adapt`: the model computes what transformers computes, and its config is as it was. Returns the model."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"restore: model must be a torch.nn.Module, got {type(model).__name__}")
    adapted = [module for module in model.modules() if isinstance(module, Adapted)]
    if adapted:
        _write_into_configs(model, adapted, _only({mixer.own_discretization for mixer in adapted}))
    for mixer in adapted:
        del mixer.own_discretization
        become(mixer, mixer.original)
    return model


def _original(mixer: nn.Module) -> Any:
    return mixer.original if isinstance(mixer, Adapted) else type(mixer)


def _own_rule(mixer: nn.Module) -> str | None:
    """What the config said before the model was adapted."""
    if isinstance(mixer, Adapted):
        return mixer.own_discretization
    rule: str | None = getattr(mixer.config, "discretization", None)
    return rule


def _only(rules: set[str | None]) -> str | None:
    if len(rules) > 1:
        raise ValueError(
            f"adapt: parts of the model have different rules, {sorted(map(str, rules))}; adapt each part separately"
        )
    return next(iter(rules))


def _is_pretrained(mixer: nn.Module) -> bool:
    return bool(getattr(mixer.config, "name_or_path", ""))


def _write_into_configs(model: nn.Module, mixers: list[Any], rule: str | None) -> None:
    """Into copies, which take the place of the configs in this model: another model may have been made from them."""
    copies = {id(mixer.config): mixer.config for mixer in mixers}
    for key, config in copies.items():
        copies[key] = copy.deepcopy(config)
        if rule is not None:
            copies[key].discretization = rule
        elif hasattr(copies[key], "discretization"):
            del copies[key].discretization
    for module in model.modules():
        config = vars(module).get("config")
        if id(config) in copies:
            module.config = copies[id(config)]
