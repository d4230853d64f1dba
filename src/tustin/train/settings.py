"""Settings from recipes and from the command line: plain YAML, names that must exist, and a `Config` of them."""

from __future__ import annotations

import re
from argparse import SUPPRESS, ArgumentError
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ArgumentParser, Namespace, set_loader, set_parsing_settings

from ..support.names import unknown
from ..support.ranges import expected, range_of
from .config import Config, keys, kinds

__all__ = ["find", "load_recipe", "parse", "recipes"]

RECIPES = Path(__file__).parent / "recipes"


def recipes() -> dict[str, str]:
    """The shipped recipes: name and description."""
    return {path.stem: str(_read(path).get("description", "")) for path in sorted(RECIPES.glob("*.yaml"))}


def find(recipe: str | Path) -> Path:
    """The file of a recipe, given its name or a path."""
    shipped = RECIPES / f"{recipe}.yaml"
    if shipped.is_file():
        return shipped
    if Path(recipe).is_file():
        return Path(recipe)
    if Path(recipe).suffix in (".yaml", ".yml"):
        raise FileNotFoundError(f"there is no recipe file {str(recipe)!r}")
    raise ValueError(unknown("recipe", str(recipe), list(recipes())) + ", or the path of a YAML file")


def load_recipe(recipe: str | Path, settings: Mapping[str, Any] | None = None) -> Config:
    """The recipe of this name or path, with `settings` such as {"optim.base_lr": 1e-3} on top."""
    path = find(recipe)
    values = _read(path)
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
    _check_names([*_names(_read(path)), *given])
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


# --- YAML -------------------------------------------------------------------------------------------------------------


class _PlainLoader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML without what no recipe needs: aliases, which a few lines can unfold into gigabytes, and repeated keys."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        if getattr(event, "anchor", None) is not None:
            raise yaml.composer.ComposerError(None, None, "anchors (&) and aliases (*) are not used", event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen = set()
        for key, _ in node.value:
            name = self.construct_object(key, deep=True)
            if isinstance(name, Hashable) and name in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{name!r} is given twice", key.start_mark)
            seen.add(name if isinstance(name, Hashable) else None)
        return super().construct_mapping(node, deep)


def read_yaml(text: str) -> Any:
    """The value of a YAML text; whatever is wrong with it is a YAMLError of one sentence."""
    try:
        return yaml.load(text, Loader=_PlainLoader)
    except RecursionError as error:
        raise yaml.YAMLError("it is nested too deeply") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise yaml.YAMLError(f"{error.problem or error.context}{where}") from error
    except (ValueError, OverflowError) as error:  # a date or a number that is none
        raise yaml.YAMLError(str(error)) from error


def _read(path: Path) -> dict[str, Any]:
    try:
        values = read_yaml(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a YAML file of settings: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold settings, 'name: value' on each line")
    return values


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
            raise ValueError(unknown("setting", name, known))
