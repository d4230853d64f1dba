"""Tustin: state-space models whose discretization is a part you choose."""

from .discretize import METHODS, Method, register
from .models import create_model, diagnose, load, load_checkpoint, save
from .scan import check_values, selective_scan

__version__ = "0.1.0"
__all__ = [
    "METHODS",
    "Method",
    "check_values",
    "create_model",
    "diagnose",
    "load",
    "load_checkpoint",
    "register",
    "save",
    "selective_scan",
]
