"""Stands in for the package of this name, on our own scan: Mamba-1 and Vision Mamba's variants of it."""

from tustin.compat.missing import name_what_is_missing

from .modules.mamba_simple import Mamba
from .ops.selective_scan_interface import mamba_inner_fn, selective_scan_fn

__version__ = "1.2.2+tustin"  # of 2.0 and later it has the signatures, but not Mamba-2: who asks wants to know that
__all__ = ["Mamba", "mamba_inner_fn", "selective_scan_fn"]

name_what_is_missing(__name__, "Mamba-1: its module, scan, one-token update, norms and block")
