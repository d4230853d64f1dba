"""What values an argument may have: a range beside its type, and one check for settings, arguments and files.

    depth: Annotated[int, Range(1, 1000)] = 24

A number that is not finite is in no range.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from numbers import Integral, Real
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from .names import unknown

__all__ = ["Range", "check", "expected", "range_of"]


@dataclass(frozen=True)
class Range:
    """Numbers from `least` to `most`; with `above` or `below` without that end."""

    least: float = -math.inf
    most: float = math.inf
    above: bool = False
    below: bool = False

    def __contains__(self, value: float) -> bool:
        if not abs(value) < math.inf or not self.least <= value <= self.most:
            return False
        return not (self.above and value == self.least) and not (self.below and value == self.most)

    def __str__(self) -> str:
        least = f"{'above' if self.above else 'at least'} {_plain(self.least)}"
        if math.isinf(self.most):
            return least
        if self.above or self.below:
            return f"{least} and {'below' if self.below else 'at most'} {_plain(self.most)}"
        return f"from {_plain(self.least)} to {_plain(self.most)}"


def range_of(kind: Any) -> Range | None:
    """The range in an annotation, also in one such as `Annotated[int, Range(1)] | None`."""
    if get_origin(kind) is Annotated:
        return next((extra for extra in kind.__metadata__ if isinstance(extra, Range)), None)
    return next((found for part in get_args(kind) if (found := range_of(part))), None)


def check(owner: Any, values: Mapping[str, Any], prefix: str = "", without: Collection[str] = ()) -> None:
    """Refuse names that `owner`, a dataclass or a function, does not have, and values that are not of their kind.

    The message has the name after `prefix`. Arguments in `without` are as unknown as others.
    """
    kinds = _hints(owner)
    known = [name for name in kinds if name != "return" and name not in without]
    for name, value in values.items():
        if name not in known:
            raise ValueError(unknown("argument", f"{prefix}{name}", known, prefix))
        if not _fits(kinds[name])(value):
            shown = repr(value) if len(repr(value)) <= 80 else f"{repr(value)[:77]}..."
            raise ValueError(f"{prefix}{name} must be {expected(kinds[name])}, got {shown}")


def expected(kind: Any) -> str:
    """What an annotation accepts, in words."""
    return " or ".join(_expected(kind))


@cache
def _hints(owner: Any) -> dict[str, Any]:
    return get_type_hints(owner, include_extras=True)


@cache
def _fits(kind: Any) -> Callable[[Any], bool]:
    """Whether a value is of a kind, as a function: large files ask it a million times."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        fits, allowed = _fits(parts[0]), range_of(kind)
        return fits if allowed is None else lambda value: fits(value) and value in allowed
    if origin is tuple and parts[-1] is ...:
        origin, parts = Sequence, parts[:1]
    inner = [_fits(part) for part in parts] if origin in (Union, types.UnionType, tuple, Sequence) else []
    if origin in (Union, types.UnionType):
        return lambda value: any(fits(value) for fits in inner)
    if origin is tuple:
        return lambda value: (
            isinstance(value, list | tuple)
            and len(value) == len(inner)
            and all(fits(item) for fits, item in zip(inner, value, strict=True))
        )
    if origin is Sequence:
        return lambda value: isinstance(value, list | tuple) and all(map(inner[0], value))
    if origin is Literal:
        return lambda value: isinstance(value, str) and value in parts
    if kind is Any:
        return lambda value: True
    number = {int: Integral, float: Real}.get(kind)
    if number:
        return lambda value: isinstance(value, number) and not isinstance(value, bool)
    return lambda value: isinstance(value, origin or kind)


def _expected(kind: Any) -> Iterator[str]:
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        yield f"{next(_expected(parts[0]))} {range_of(kind)}"
    elif origin in (Union, types.UnionType):
        for part in parts:
            yield from _expected(part)
    elif origin is Literal:
        yield from map(repr, parts)
    elif origin is tuple and parts[-1] is not ...:
        yield f"a list of {len(parts)}, each {next(_expected(parts[0]))}"
    elif origin in (Sequence, tuple):
        yield f"a list, each {next(_expected(parts[0]))}"
    else:
        yield _WORDS.get(origin or kind, str(kind))


_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    dict: "a mapping",
    type(None): "null",
}


def _plain(value: float) -> str:
    if isinstance(value, int):  # a float has not all the digits of 2**63 − 1
        return f"{value:,}" if abs(value) >= 1e4 else str(value)
    return f"{value:,.0f}" if value == int(value) and abs(value) >= 1e4 else f"{value:g}"
