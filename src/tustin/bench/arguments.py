"""What an argument of a benchmark may be; nonsense is refused here, before anything has been measured."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

from ..discretize import get_discretization
from . import files

PAPER_DISCRETIZATIONS = ("zoh", "foh", "bil", "pol", "hoh", "rk4")


def discretization(text: str) -> str:
    """The name of a rule."""
    try:
        return get_discretization(text).name
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def positive(text: str) -> int:
    """A whole number of at least 1."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return number


def threads(text: str) -> int:
    """No more than there are cores."""
    number, cores = positive(text), os.cpu_count() or 1
    if number > cores:
        raise argparse.ArgumentTypeError(
            f"{number} threads on {cores} cores would measure how they wait for each other"
        )
    return number


def positives(text: str) -> list[int]:
    """Numbers with commas between them, in rising order."""
    return sorted({positive(part.strip()) for part in text.split(",")})


def vision_mamba(text: str) -> str:
    """The name of a model."""
    import timm

    from .. import models  # noqa: F401  from now on timm knows them
    from ..support.names import unknown

    names = timm.list_models(module="vim")
    if text not in names:
        raise argparse.ArgumentTypeError(unknown("model", text, names))
    return text


def discretizations(text: str) -> list[str]:
    """Rules with commas between them; "all" are those of the paper."""
    return [*PAPER_DISCRETIZATIONS] if text == "all" else [discretization(name.strip()) for name in text.split(",")]


def folder(text: str) -> Path:
    """One that is there, or can be made."""
    path = Path(text)
    nearest = next(parent for parent in (path.resolve(), *path.resolve().parents) if parent.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        problem = "it cannot be written" if nearest.is_dir() else f"{nearest.name} is a file, not a folder"
        raise argparse.ArgumentTypeError(f"{text}: {problem}")
    return path


def picture(text: str) -> Path:
    """A file whose ending is the format of a picture."""
    from ..report.rules_picture import format_of

    try:
        format_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return output(text)


def output(text: str) -> Path:
    """Where to write, "-" being the standard output. Found wanting now and not after minutes of measuring."""
    try:
        return Path(text) if text == "-" else files.writable(Path(text))
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text}: {error.strerror}") from error


def marked(block: files.Block) -> Callable[[str], Path]:
    """A page that has the marks of the block."""

    def page(text: str) -> Path:
        path = Path(text)
        try:
            block.split(files.writable(path).read_text(encoding="utf-8"), text)
        except OSError as error:
            raise argparse.ArgumentTypeError(f"{text}: {error.strerror}") from error
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
        return path

    return page
