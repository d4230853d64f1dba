"""What a scan is given: its tensors and its options, in the order of the operator's schema."""

from __future__ import annotations

from typing import Any, NamedTuple, get_type_hints

from torch import Tensor


class Tensors(NamedTuple):
    """The tensors, or their gradients; `selective_scan` says their shapes. One with a default may be left out."""

    u: Tensor
    delta: Tensor
    A: Tensor
    B: Tensor
    C: Tensor
    D: Tensor | None = None
    z: Tensor | None = None
    delta_bias: Tensor | None = None
    initial_state: Tensor | None = None


class Options(NamedTuple):
    """What is the same for all tokens."""

    delta_softplus: bool
    discretization: str
    reverse: bool


OPTIONAL = frozenset(Tensors._field_defaults)
TENSORS = len(Tensors._fields)
_END = TENSORS + len(Options._fields)
_new = tuple.__new__  # as the classes do it, without their call into Python

_KINDS = {Tensor: "Tensor", Tensor | None: "Tensor?", bool: "bool", str: "str"}
SCHEMA = ", ".join(
    f"{_KINDS[kind]} {name}" for structure in (Tensors, Options) for name, kind in get_type_hints(structure).items()
)
"""Both, as the schema of an operator lists its arguments."""


def split(arguments: tuple[Any, ...]) -> tuple[Tensors, Options]:
    """The first arguments of the operator as the structures they were."""
    return _new(Tensors, arguments[:TENSORS]), _new(Options, arguments[TENSORS:_END])


def groups(matrix: Tensor) -> int:
    """0 for a constant B or C (D, N), 1 for one per token (batch, N, L), G for (batch, G, N, L)."""
    return matrix.shape[1] if matrix.ndim == 4 else matrix.ndim - 2
