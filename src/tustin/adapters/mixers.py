"""Mixers of transformers as classes of ours: their own forward pass, in which some names mean our functions.

The forward pass of a mixer finds the scan, the convolution and their one-token updates by name, in its module. An
adapted mixer is an instance of a subclass whose forward pass is the same code, looking these names up elsewhere. So
nothing in transformers changes, no mixer knows of another, and what a mixer computes follows from its class alone: in
every thread, when a checkpoint is computed again, in a copy, and in a compiled model.
"""

from __future__ import annotations

import functools
import sys
from types import CellType, FunctionType, MethodType
from typing import Any

from torch import nn

from ..discretize import get_discretization
from .functions import NEEDED, functions
from .one_token import with_one_token
from .products import with_fast_products

MIXERS = {
    "mamba": "MambaMixer",
    "falcon_mamba": "FalconMambaMixer",
    "jamba": "JambaMambaMixer",
    "zamba": "ZambaMambaMixer",
}
"""The mixer of each type of model that can be adapted."""
VERSIONS = "5.15 and newer"
"""The versions of transformers whose mixers call all of `NEEDED`."""


class Adapted(nn.Module):
    """What the classes of adapted mixers have in common."""

    original: type[nn.Module]
    discretization: str
    """Its rule."""
    own_discretization: str | None
    """What the model's config said before."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copied and pickled as a mixer of transformers that becomes ours: its class has no name to be found by."""
        return _rebuild, (self.original, self.discretization), vars(self)


def _rebuild(original: Any, discretization: str) -> nn.Module:
    adapted: Any = adapted_class(original, discretization)
    mixer: nn.Module = adapted.__new__(adapted)
    return mixer


def is_mixer(module: nn.Module) -> bool:
    """Whether it is one of `MIXERS`, of whatever version."""
    return any(
        (base.__module__, base.__name__) == (f"transformers.models.{model}.modeling_{model}", name)
        for base in type(module).__mro__
        for model, name in MIXERS.items()
    )


def become(mixer: nn.Module, cls: type[nn.Module]) -> None:
    """Make it an instance of another class, also where accelerate has put its hooks around the forward pass."""
    if "_old_forward" in vars(mixer):
        vars(mixer)["_old_forward"] = MethodType(cls.forward, mixer)
    elif "forward" in vars(mixer):
        raise ValueError("adapt: the forward function of a mixer has already been replaced by other code")
    mixer.__class__ = cls


@functools.cache  # the same class for all mixers of a kind
def adapted_class(original: Any, discretization: str) -> type[Adapted]:
    """The subclass of a mixer's class that uses our functions, with that rule."""
    forward = original.forward
    if missing := [name for name in NEEDED if name not in _innermost(forward).__code__.co_names]:
        version = getattr(sys.modules.get("transformers"), "__version__", "of an unknown version")
        raise RuntimeError(
            f"adapt: {original.__name__} of transformers {version} does not call {missing[0]}; "
            f"expected transformers {VERSIONS}"
        )
    rule = get_discretization(discretization)
    adapted = with_fast_products(_with_names(forward, functions(rule)))
    members = {
        "forward": with_one_token(adapted, rule) if original.__name__ == MIXERS["mamba"] else adapted,
        "original": original,
        "discretization": discretization,
        "__module__": __name__,
        "__doc__": original.__doc__,
    }
    return type(original.__name__, (Adapted, original), members)


def _innermost(function: Any) -> FunctionType:
    """The function inside its decorators."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    found: FunctionType = function
    return found


def _with_names(function: Any, names: dict[str, Any]) -> FunctionType:
    """The same function, in which these global names have other meanings; its decorators are applied anew."""
    closure = function.__closure__
    if hasattr(function, "__wrapped__"):
        inside = _with_names(function.__wrapped__, names)
        closure = tuple(CellType(inside) if c.cell_contents is function.__wrapped__ else c for c in closure)
        scope = function.__globals__
    else:
        # Without a module's name: the compiler would look the names up in that module.
        scope = {name: value for name, value in function.__globals__.items() if name != "__name__"} | names
        inside = None
    new = FunctionType(function.__code__, scope, function.__name__, function.__defaults__, closure)
    functools.update_wrapper(new, function)
    new.__kwdefaults__ = function.__kwdefaults__
    if inside is None:
        vars(new).pop("__wrapped__")
    else:
        new.__wrapped__ = inside  # type: ignore[attr-defined]
    return new
