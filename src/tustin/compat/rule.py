"""The discretization of everything that runs on the stand-in: one for the process, `mamba` unless told otherwise."""

from __future__ import annotations

import os

from ..discretize import Discretization, get_discretization

__all__ = ["VARIABLE", "rule", "set_rule"]

VARIABLE = "TUSTIN_DISCRETIZATION"
"""The environment variable that sets the rule at the start."""


def _from_environment() -> Discretization:
    try:
        return get_discretization(os.environ.get(VARIABLE) or "mamba")
    except ValueError as error:
        raise ValueError(f"{VARIABLE}: {error}") from None


_rule = _from_environment()


def rule() -> Discretization:
    """The rule that the next call uses."""
    return _rule


def set_rule(discretization: str | Discretization) -> None:
    global _rule
    _rule = get_discretization(discretization)
