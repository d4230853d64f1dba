"""Recipes as files: where they are, and plain YAML with an error that names the file."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from ..support.names import unknown

__all__ = ["find", "read", "read_yaml", "recipes"]

RECIPES = Path(__file__).parent / "recipes"


def recipes() -> dict[str, str]:
    """The shipped recipes: name and description."""
    return {path.stem: str(read(path).get("description", "")) for path in sorted(RECIPES.glob("*.yaml"))}


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


class _PlainLoader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML without what no recipe needs: aliases, which a few lines can unfold into gigabytes, and repeated keys."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        if getattr(event, "anchor", None) is not None:
            problem = "anchors (&) and aliases (*) are not allowed"
            raise yaml.composer.ComposerError(None, None, problem, event.start_mark)
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


def read(path: Path) -> dict[str, Any]:
    try:
        values = read_yaml(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a YAML file of settings: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold settings, 'name: value' on each line")
    return values
