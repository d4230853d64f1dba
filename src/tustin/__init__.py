"""Tustin: state-space models whose discretization is a part you choose."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .support.signals import end_at_once_on_interrupt, is_command

if is_command():  # before torch is imported, which takes seconds in which Ctrl-C would be a traceback, or lost
    end_at_once_on_interrupt()

from .discretize import DISCRETIZATIONS, Discretization, register
from .ops.scan import check_values, selective_scan
from .support.registration import register_with_timm

if TYPE_CHECKING:
    from .models import create_model, load, load_checkpoint, save
    from .models.diagnose import diagnose

__version__ = "0.1.0"
__all__ = [
    "DISCRETIZATIONS",
    "Discretization",
    "check_values",
    "create_model",
    "diagnose",
    "load",
    "load_checkpoint",
    "register",
    "save",
    "selective_scan",
]

register_with_timm()


def __getattr__(name: str) -> Any:
    """What comes from `models` is imported when it is asked for, because timm comes with it."""
    if name in __all__:
        return getattr(import_module(".models", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
