"""What a scan is given: its tensors and its options, in the order of the operator's schema, and what it insists on.

Every mistake is one sentence that names the argument and what was expected.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, get_type_hints

import torch
from torch import Tensor

from ...discretize import Discretization
from ...discretize.apply import check_mix
from ..checks import check_tensor, misshapen


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
    mix: Tensor | None = None


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


def state_shape(u: Tensor, A: Tensor, rule: Discretization) -> tuple[int, ...]:
    """(batch, D, N), or (batch, D, N, p) for a rule whose state has p parts."""
    shape = (*u.shape[:2], A.shape[1])
    return shape if rule.state_parts == 1 else (*shape, rule.state_parts)


def empty_state(u: Tensor, A: Tensor, rule: Discretization) -> Tensor:
    """Room for a state; its parts, where it has several, lie one after the other, as the fused backends write them."""
    shape = state_shape(u, A, rule)
    return A.new_empty(shape) if len(shape) == 3 else A.new_empty(shape[-1], *shape[:3]).movedim(0, -1)


# ── what it insists on ───────────────────────────────────────────────────────────────────────────────────────────────

_NAMES = Tensors._fields
_values_checked = os.environ.get("TUSTIN_CHECK_VALUES", "0") not in ("", "0")


@contextmanager
def check_values(enabled: bool = True) -> Iterator[None]:
    """Inside this block `selective_scan` raises an error if a tensor has a NaN or an infinity, and says where.

    Reading every value costs time, so it is off by default; TUSTIN_CHECK_VALUES=1 turns it on for a whole program.
    """
    global _values_checked
    before, _values_checked = _values_checked, enabled
    try:
        yield
    finally:
        _values_checked = before


def mix_per_token(mix: Tensor | float | None, tensors: Tensors, rule: Discretization) -> Tensor | None:
    """λ as a tensor (batch, D, L), which for a constant is a view of one number."""
    check_mix("selective_scan", rule, mix)
    u = tensors.u
    if mix is None or not isinstance(u, Tensor):
        return None
    if not isinstance(mix, Tensor):
        mix = u.new_tensor(mix, dtype=compute_dtype(tensors))
    return mix.expand(u.shape) if mix.ndim == 0 else mix


def compute_dtype(tensors: Tensors) -> torch.dtype:
    """float32, or float64 if any argument is."""
    dtypes = [t.dtype for t in tensors if t is not None]
    return torch.float64 if torch.float64 in dtypes else torch.float32


def check_arguments(tensors: Tensors, discretization: Discretization) -> None:
    """Raise unless the arguments of `selective_scan` fit together; u and A set what the others must be."""
    given = {
        name: check_tensor("selective_scan", name, tensor)
        for name, tensor in zip(_NAMES, tensors, strict=True)
        if not (tensor is None and name in OPTIONAL)
    }
    u, A = given["u"], given["A"]
    if u.ndim != 3 or u.shape[2] == 0:
        raise misshapen("selective_scan", "u", u, "(batch, D, L) with L of at least 1")
    batch, D, L = u.shape
    if A.ndim != 2 or A.shape[0] != D or A.shape[1] == 0:
        raise misshapen("selective_scan", "A", A, f"(D, N) with D = {D}, as u has, and N of at least 1")
    N = A.shape[1]

    exact = {
        "delta": (batch, D, L),
        "z": (batch, D, L),
        "D": (D,),
        "delta_bias": (D,),
        "initial_state": state_shape(u, A, discretization),
        "mix": (batch, D, L),
    }
    device = u.device
    for name, tensor in given.items():
        if tensor.device != device:
            raise ValueError(f"selective_scan: {name} is on {tensor.device}, but u is on {device}")
        if name in exact and tensor.shape != exact[name]:
            raise misshapen("selective_scan", name, tensor, str(exact[name]))
    for name in ("B", "C"):
        _check_input_matrix(name, given[name], batch, D, L, N)
    if _values_checked:
        for name, tensor in given.items():
            _check_finite(name, tensor)


def _check_input_matrix(name: str, tensor: Tensor, batch: int, D: int, L: int, N: int) -> None:
    shape = tuple(tensor.shape)
    # By the number of dimensions first: comparing a symbolic batch size with D would tie torch.export to batch ≠ D.
    expected = {2: (D, N), 3: (batch, N, L), 4: (batch, *shape[1:2], N, L)}.get(len(shape))
    if shape != expected or (len(shape) == 4 and (shape[1] == 0 or D % shape[1])):
        forms = f"(D, N) = {(D, N)}, (batch, N, L) = {(batch, N, L)} or (batch, G, N, L) = ({batch}, G, {N}, {L})"
        raise misshapen("selective_scan", name, tensor, f"{forms} with G dividing {D}")


def _check_finite(name: str, tensor: Tensor) -> None:
    finite = tensor.isfinite()
    if not finite.all():
        at = tuple(int(i) for i in (~finite).nonzero()[0])
        bad = int((~finite).sum())
        value = float(tensor[at])
        raise ValueError(
            f"selective_scan: {name} has {bad} non-finite value{'s'[: bad > 1]}, the first is {value} at index {at}; "
            "every value must be finite"
        )
