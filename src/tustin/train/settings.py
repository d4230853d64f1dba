"""Settings from recipes and from the command line: plain YAML, names that must exist, and a `Config` of them."""

from __future__ import annotations

import difflib
import inspect
import re
from argparse import SUPPRESS, ArgumentError
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ArgumentParser, Namespace, set_loader, set_parsing_settings

from ..models import VisionMamba
from ..support.names import unknown
from ..support.ranges import expected, range_of
from .checks import SETTING_OF
from .config import Config, keys, kinds
from .recipe import find, read, read_yaml

__all__ = ["load_recipe", "parse"]


def load_recipe(recipe: str | Path, settings: Mapping[str, Any] | None = None) -> Config:
    """The recipe of this name or path, with `settings` such as {"optim.base_lr": 1e-3} on top."""
    path = find(recipe)
    values = read(path)
    for key, value in (settings or {}).items():
        *groups, name = key.split(".")
        group = values
        for part in groups:
            group = group.setdefault(part, {})
        group[name] = value
    _check_names(_names(values))
    parser = _parser()
    with _sentences():
        parsed = parser.parse_object(values)
    return _build(parser, parsed, path)


def parse(recipe: str | Path, arguments: Sequence[str]) -> Config:
    """The recipe with command-line arguments on top; --help and --print_config print and raise SystemExit."""
    path = find(recipe)
    given = [word[2:].partition("=")[0] for word in arguments if word.startswith("--")]
    _check_names([*_names(read(path)), *given])
    parser = _parser()
    words = [word for word in arguments if not word.startswith("--print_config")]
    with _sentences():
        parsed = parser.parse_args(["--config", str(path), *words])
    config = _build(parser, parsed, path)
    if len(words) < len(arguments):  # only what is right is printed
        parser.parse_args(["--config", str(path), *arguments])
    return config


def _build(parser: ArgumentParser, values: Namespace, path: Path) -> Config:
    values.pop("config", None)
    config = Config(**vars(parser.instantiate(values)))
    if config.out is None:
        config.out = str(Path("runs") / f"{path.stem}-{config.model.discretization}-{config.seed}")
    return config


def _parser() -> ArgumentParser:
    set_parsing_settings(docstring_parse_attribute_docstrings=True)
    set_loader("plain", read_yaml, exceptions=(yaml.YAMLError,))
    parser = ArgumentParser(
        prog="tustin train RECIPE",
        exit_on_error=False,
        parser_mode="plain",
        description="Settings of a training run, on top of a recipe.",
    )
    parser.add_argument("--config", action="config", help=SUPPRESS)
    parser.add_class_arguments(Config)
    ranges = {key: range_of(kind) for key, kind in kinds().items()}
    for action in parser._actions:
        if allowed := ranges.get(action.dest):
            action.help = f"{action.help} ({allowed})"
    return parser


@contextmanager
def _sentences() -> Iterator[None]:
    """What the parser says about the types of a value, in our words."""
    try:
        yield
    except (ArgumentError, TypeError, ValueError) as error:
        text = " ".join(str(error).split())
        named = re.search(r'Parser key "([\w.]+)"', text)
        kind = kinds().get(named[1]) if named else None
        if not named or not kind:
            raise ValueError(text) from error
        value = re.split(r"\b[Vv]alue: ?", text)[-1] or "nothing"
        raise ValueError(f"{named[1]} must be {expected(kind)}, got {value}") from error


# --- names ------------------------------------------------------------------------------------------------------------


def _names(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The dotted names of the settings in a recipe; model.args is one of them, whatever it holds."""
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and key != "model.args":
            yield from _names(value, f"{key}.")
        else:
            yield key


def _check_names(names: Iterable[str]) -> None:
    known = [*keys(), "help", "print_config"]
    for name in names:
        if name not in known and not name.startswith("model.args."):
            raise ValueError(_unknown(name, known))


def _unknown(name: str, known: Sequence[str]) -> str:
    """The sentence for a setting that does not exist, with the group that was forgotten or has another name."""
    group, _, last = name.rpartition(".")
    groups = sorted({key.partition(".")[0] for key in known if "." in key})
    meant = difflib.get_close_matches(group or last, groups, n=1)
    known = [*known, *_arguments()]
    inside = [key for key in known if key.startswith(tuple(f"{word}." for word in meant))]
    if last in ("lr", "learning_rate"):
        same = [key for key in known if key.endswith("_lr")]
    else:
        same = _named_like(last, inside if group else known, exactly=bool(meant and not group))
    if not same and meant and not group:
        return f"unknown setting {name!r} (did you mean one of the group {meant[0]!r}: {', '.join(inside)}?)"
    if same:
        return f"unknown setting {name!r} (did you mean {' or '.join(map(repr, same))}?)"
    return unknown("setting", name, known)


def _named_like(last: str, known: Sequence[str], exactly: bool) -> list[str]:
    """The settings whose last part is `last`, or else the one nearest to it."""
    lasts = {key: key.rpartition(".")[2] for key in known}
    nearest = [last] if exactly else difflib.get_close_matches(last, lasts.values(), n=1)
    return [key for key, end in lasts.items() if end in nearest]


def _arguments() -> list[str]:
    """The arguments of the model as settings."""
    names = inspect.signature(VisionMamba).parameters
    return [f"model.args.{name}" for name in names if name not in SETTING_OF]
