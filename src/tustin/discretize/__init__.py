"""WHAT a step of the state-space model computes: the discretization rules, one short file each."""

from .apply import discretize
from .base import DISCRETIZATIONS, Coefficients, Discretization, get_discretization, register
from .bil import BIL
from .exptrap import EXPTRAP
from .foh import FOH
from .hoh import HOH, HOH3, higher_order_hold
from .mamba import MAMBA
from .own import Origin, RuleFile, import_rules, imported_files, origin_of, recorded_origin, register_installed
from .phi import phi
from .pol import POL
from .rk4 import RK4, RK4_RAW
from .true_bil import TRUE_BIL
from .true_foh import TRUE_FOH
from .true_hoh import TRUE_HOH
from .zoh import ZOH

__all__ = [
    "BUILT_IN",
    "DISCRETIZATIONS",
    "FUSED",
    "Coefficients",
    "Discretization",
    "Origin",
    "RuleFile",
    "discretize",
    "get_discretization",
    "higher_order_hold",
    "import_rules",
    "imported_files",
    "origin_of",
    "phi",
    "recorded_origin",
    "register",
]

BUILT_IN = (MAMBA, ZOH, FOH, BIL, POL, HOH, HOH3, RK4, RK4_RAW, TRUE_FOH, TRUE_BIL, EXPTRAP, TRUE_HOH)
"""The rules that come with the package, in the order of every table."""

FUSED = tuple(rule for rule in BUILT_IN if rule.steps == 1)
"""The built-in rules of the fused backends. All other rules run on the reference."""

for _discretization in BUILT_IN:
    register(_discretization)
register_installed()
