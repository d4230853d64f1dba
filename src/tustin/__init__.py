"""Tustin: state-space models with pluggable discretization."""

from __future__ import annotations

from .support import early as _early  # noqa: F401  before all else

# isort: split

from importlib import import_module
from typing import TYPE_CHECKING

from .support.imports import lazy_names, when_imported

__version__ = "0.1.0"
__all__ = [
    "DISCRETIZATIONS",
    "Discretization",
    "adapt",
    "causal_conv",
    "causal_conv_update",
    "check_values",
    "create_model",
    "diagnose",
    "load",
    "load_checkpoint",
    "push_to_hub",
    "register",
    "restore",
    "save",
    "save_for_hub",
    "selective_scan",
    "selective_state_update",
]

if TYPE_CHECKING:
    from .adapters import adapt, restore
    from .discretize import DISCRETIZATIONS, Discretization, register
    from .models import create_model, load, load_checkpoint, save
    from .models.diagnose import diagnose
    from .ops import causal_conv, causal_conv_update, selective_state_update
    from .ops.scan import check_values, selective_scan
    from .share import push_to_hub, save_for_hub
else:  # torch takes seconds and timm as long again: a command that needs neither starts at once
    __getattr__ = lazy_names(
        __name__,
        {
            ".adapters": ("adapt", "restore"),
            ".discretize": ("DISCRETIZATIONS", "Discretization", "register"),
            ".models": ("create_model", "load", "load_checkpoint", "save"),
            ".models.diagnose": ("diagnose",),
            ".ops": ("causal_conv", "causal_conv_update", "selective_state_update"),
            ".ops.scan": ("check_values", "selective_scan"),
            ".share": ("push_to_hub", "save_for_hub"),
        },
    )

# Whoever imports tustin finds its models in timm, also where timm is imported later, and need not import both.
when_imported("timm", lambda: import_module(".models", __name__))
