"""What the arguments of several commands may be; nonsense is refused with one sentence before anything runs."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ..support.files import shortened
from ..support.ranges import Range

__all__ = ["at_least_one", "discretization", "image_size", "listed", "picture", "share", "web_page", "zero_or_more"]

T = TypeVar("T")


def at_least_one(text: str) -> int:
    """A whole number of at least 1."""
    if not re.fullmatch(r"[1-9]\d{0,8}", text, re.ASCII):
        raise argparse.ArgumentTypeError(
            f"expected a whole number of at least 1 and at most 9 digits, got {shortened(text)}"
        )
    return int(text)


def zero_or_more(text: str) -> int:
    """A whole number."""
    return 0 if text == "0" else at_least_one(text)


def share(text: str) -> float:
    """A number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if value not in Range(0, 1):
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 1, got {text!r}")
    return value


def discretization(text: str) -> str:
    """The name of a rule."""
    from ..discretize import get_discretization

    try:
        return get_discretization(text).name
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def image_size(text: str) -> tuple[int, int]:
    """ "224" or "160x288" → (height, width)."""
    if not re.fullmatch(r"[1-9]\d{0,8}(x[1-9]\d{0,8})?", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"expected a size such as 224 or 160x288, got {text!r}")
    height, _, width = text.partition("x")
    return int(height), int(width or height)


def picture(text: str) -> Path:
    """A file whose ending is the format of a picture."""
    from ..report.plot_style import format_of

    try:
        format_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return Path(text)


def listed(kind: Callable[[str], T]) -> Callable[[str], list[T]]:
    """A list, which is written with commas between its items: "zoh,bil"."""

    def parse(text: str) -> list[T]:
        items = [item.strip() for item in text.split(",")]
        if not all(items):
            raise argparse.ArgumentTypeError(f"expected values with commas between them, got {shortened(text)}")
        return [kind(item) for item in items]

    return parse


def web_page(text: str) -> Path:
    """A file whose name ends in .html."""
    if Path(text).suffix.lower() not in (".html", ".htm"):
        raise argparse.ArgumentTypeError(f"cannot write {text!r}: the file's name must end in .html")
    return Path(text)
