"""WHAT a step of the state-space model computes: the discretization rules, one short file each."""

from .base import METHODS, Coefficients, Method, get_method, register
from .mamba import MAMBA
from .zoh import ZOH
from .foh import FOH  # isort: skip  (the order of import is the order of every table)
from .bil import BIL  # isort: skip
from .pol import POL  # isort: skip
from .hoh import HOH, HOH3, higher_order_hold  # isort: skip
from .rk4 import RK4, RK4_RAW  # isort: skip
from .apply import discretize
from .phi import phi

__all__ = ["METHODS", "Coefficients", "Method", "discretize", "get_method", "higher_order_hold", "phi", "register"]
