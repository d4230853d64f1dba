"""What commands print: JSON for programs, text and tables for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..report import terminal
from ..report.table import strict

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["as_json", "print_drawn", "print_json", "print_rich"]


def print_json(facts: object) -> None:
    """Strict JSON: a number that is not finite becomes the string "inf", "-inf" or "nan", which `float` reads back."""
    print(as_json(facts, utf8=(sys.stdout.encoding or "").lower().replace("-", "") == "utf8"))


def as_json(facts: object, *, utf8: bool) -> str:
    """The text of `print_json`; where the letters of all languages cannot be written, they are escaped."""
    return json.dumps(strict(facts), indent=2, ensure_ascii=not utf8, allow_nan=False)


def print_rich(*parts: Any) -> None:
    """Tables and text, one below the other; plain where the output is no terminal."""
    print_drawn(lambda console: console.print(*parts, sep="\n"))


def print_drawn(draw: Callable[[Console], None]) -> None:
    """What is drawn on a console of rich."""
    sys.stdout.write(terminal.drawn(draw))
