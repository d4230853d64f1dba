"""How `torch.onnx.export` translates our operators: registered as soon as its translations are loaded, by anyone.

The scan has a translation of its own. The others are their definitions in plain PyTorch, which it knows.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

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
    others = {operator: definition for operator, definition in DEFINITIONS.items() if operator is not scan}

    # The exporter's own table: in PyTorch's, compilers and fake tensors would find the definitions as well.
    exporter: Any = import_module("torch.onnx._internal.exporter._decomp")
    table = exporter.create_onnx_friendly_decomposition_table
    exporter.create_onnx_friendly_decomposition_table = lambda translated: table(translated) | others
