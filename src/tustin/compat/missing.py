"""What a stand-in does not have: its name, in one sentence, at the line that imports it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

__all__ = ["name_what_is_missing"]


def name_what_is_missing(package: str, has: str) -> None:
    """From now on importing anything below `package` that nobody else finds raises a sentence that says so."""
    if not any(isinstance(finder, _Missing) and finder.package == package for finder in sys.meta_path):
        sys.meta_path.append(_Missing(package, has))


class _Missing(MetaPathFinder):
    """The last finder that is asked. It also sees the names that a `from` import does not find in a package."""

    def __init__(self, package: str, has: str) -> None:
        self.package, self.has = package, has

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        if name.startswith(f"{self.package}."):
            # Without `name=`: Python would take it for its own, and replace the sentence.
            raise ModuleNotFoundError(f"tustin.compat replaces {self.package}, but has no {name}; it has {self.has}")
