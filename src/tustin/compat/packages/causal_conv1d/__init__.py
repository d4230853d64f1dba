"""Stands in for the package of this name, on our own convolution."""

from tustin.compat.missing import name_what_is_missing

from .causal_conv1d_interface import causal_conv1d_fn, causal_conv1d_update

__version__ = "1.6.1+tustin"  # the version whose signatures it has
__all__ = ["causal_conv1d_fn", "causal_conv1d_update"]

name_what_is_missing(__name__, "causal_conv1d_fn and causal_conv1d_update")
