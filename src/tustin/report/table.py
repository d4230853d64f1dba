"""One table for every output: what it holds, and how its numbers are written."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["NOTHING", "Table", "Value", "flat", "number", "signed", "strict"]

NOTHING = "–"
"""What a cell without a value shows."""

Value = str | int | float | None
"""What a cell may hold; numbers are for files that programs read."""


@dataclass(frozen=True)
class Table:
    """Values in rows; the first column says what a row is about."""

    name: str
    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[Value, ...]]
    note: str = ""
    words: frozenset[str] = frozenset()
    """Columns, beside the first, that hold words and not numbers."""
    long_names: bool = False
    """Whether the first column gives way where there is little room, and not the others."""

    def is_text(self, column: int) -> bool:
        return column == 0 or self.header[column] in self.words

    def texts(self) -> list[list[str]]:
        """The rows as they are read."""
        return [[shown(value) for value in row] for row in self.rows]


def shown(value: Value) -> str:
    """A value for people."""
    if value is None:
        return NOTHING
    if isinstance(value, float) and math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return str(value)


def strict(value: Any) -> Any:
    """The value for files, which know no infinity: a number that is not finite is the text "inf", "-inf" or "nan"."""
    if isinstance(value, dict):
        return {key: strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def number(value: float) -> str:
    """Three digits, and never an exponent."""
    rounded = float(f"{value:.3g}")  # 99.97 has its decimal point where 100 has it
    digits = next((d for d, bound in ((3, 1), (2, 10), (1, 100)) if rounded < bound), 0)
    return f"{value:.{digits}f}"


def signed(value: float, decimals: int) -> str:
    """With a true minus sign, and no sign for what rounds to zero."""
    text = f"{value:+.{decimals}f}"
    return text[1:] if float(text) == 0 else text.replace("-", "−")


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values by their dotted names."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found
