"""What values an argument may have: a range beside its type, and one check for settings, arguments and files.

    depth: Annotated[int, Range(1, 1000)] = 24

A number that is not finite is in no range.
"""

from __future__ import annotations

import math
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from .discretize.base import unknown

__all__ = ["Range", "check", "expected", "range_of"]


@dataclass(frozen=True)
class Range:
    """Numbers from `least` to `most`; with `above` or `below` without that end."""

    least: float = -math.inf
    most: float = math.inf
    above: bool = False
    below: bool = False

    def __contains__(self, value: float) -> bool:
        if not math.isfinite(value) or not self.least <= value <= self.most:
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
    kinds = get_type_hints(owner, include_extras=True)
    known = [name for name in kinds if name != "return" and name not in without]
    for name, value in values.items():
        if name not in known:
            raise ValueError(unknown("argument", f"{prefix}{name}", known))
        if not _fits(kinds[name], value):
            shown = repr(value) if len(repr(value)) <= 80 else f"{repr(value)[:77]}..."
            raise ValueError(f"{prefix}{name} must be {expected(kinds[name])}, got {shown}")


def expected(kind: Any) -> str:
    """What an annotation accepts, in words."""
    return " or ".join(_expected(kind))


def _fits(kind: Any, value: Any) -> bool:
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        fits = _fits(parts[0], value)
        return fits and all(value in extra for extra in parts[1:] if isinstance(extra, Range))
    if origin in (Union, types.UnionType):
        return any(_fits(part, value) for part in parts)
    if origin is Literal:
        return isinstance(value, str) and value in parts
    if origin is tuple:
        return isinstance(value, list | tuple) and len(value) == len(parts) and all(map(_fits, parts, value))
    if origin is Sequence:
        return isinstance(value, list | tuple) and all(_fits(parts[0], item) for item in value)
    if kind is float:
        return isinstance(value, Real) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, Integral) and not isinstance(value, bool)
    return kind is Any or isinstance(value, type(None) if kind is None else origin or kind)


def _expected(kind: Any) -> Iterator[str]:
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        yield f"{next(_expected(parts[0]))} {range_of(kind)}"
    elif origin in (Union, types.UnionType):
        for part in parts:
            yield from _expected(part)
    elif origin is Literal:
        yield from map(repr, parts)
    elif origin is tuple:
        yield f"a list of {len(parts)}, each {next(_expected(parts[0]))}"
    elif origin is Sequence:
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
    return f"{value:,.0f}" if value == int(value) and abs(value) >= 1e4 else f"{value:g}"
