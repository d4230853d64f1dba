"""Make our models known to timm without importing it: that takes longer than everything else here, torch included."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def register_with_timm() -> None:
    """Import `tustin.models`, which registers them: at once if timm is there already, else as soon as it is."""
    if "timm" in sys.modules:
        importlib.import_module("tustin.models")
    elif not any(isinstance(finder, _TimmFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _TimmFinder())


class _TimmFinder(MetaPathFinder):
    """Finds timm as everyone else does, once, and sees to it that our models follow it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "timm":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _ThenOurs(spec.loader)
        return spec


class _ThenOurs(Loader):
    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self.loader  # as if we had never been here
        self.loader.exec_module(module)
        importlib.import_module("tustin.models")
