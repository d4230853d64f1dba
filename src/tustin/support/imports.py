"""Imports that wait: names imported when they are asked for, and what follows when somebody imports a library."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["lazy_names", "when_imported"]


def lazy_names(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose names come from these modules, each imported when it is first asked for.

    Args:
        package: Name of the package.
        modules: Every module, relative to the package, with the names that come from it.
    """
    module_of = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(module_of[name], package), name)
        setattr(sys.modules[package], name, value)  # the next time it is found at once
        return value

    return get


def when_imported(library: str, action: Callable[[], object]) -> None:
    """Do this as soon as the library has been imported, by anyone; at once if it has been already."""
    if sys.modules.get(library) is not None:
        action()
    else:
        sys.meta_path.insert(0, _Finder(library, action))


class _Finder(MetaPathFinder):
    """Finds the library as everyone else does, once, and sees to it that the action follows."""

    def __init__(self, library: str, action: Callable[[], object]) -> None:
        self.library, self.action = library, action

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self.library:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self.action)
        return spec


class _Loader(Loader):
    """Loads the library as its own loader does, and then acts."""

    def __init__(self, loader: Loader, action: Callable[[], object]) -> None:
        self.loader, self.action = loader, action

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self.loader  # as if we had never been here
        self.loader.exec_module(module)
        self.action()
