"""How `torch.onnx.export` translates our operators: registered as soon as its translations are loaded, by anyone.

The scan has a translation of its own. The others are their definitions in plain PyTorch, which it knows.
"""

from __future__ import annotations

from importlib import import_module

import torch

from ..support.imports import when_imported
from .operators import DEFINITIONS

__all__ = ["register_when_needed"]

_TRANSLATIONS = "torch.onnx._internal.exporter._torchlib.ops"


def register_when_needed() -> None:
    when_imported(_TRANSLATIONS, _register)


def _register() -> None:
    from torch.onnx._internal.exporter._torchlib._torchlib_registry import onnx_impl

    from .scan.onnx import translate

    scan = torch.ops.tustin.selective_scan.default
    onnx_impl(scan, no_compile=True)(translate)
    tables = import_module("torch._decomp")
    others = {operator: definition for operator, definition in DEFINITIONS.items() if operator is not scan}
    tables.decomposition_table.update(others)
    tables.meta_table.update(others)  # else fake tensors of unknown size would run the definitions from now on
