"""Our scan in other people's code: a replacement for `mamba_ssm` and `causal_conv1d`, and VMamba's signature.

    import tustin.compat

    tustin.compat.install()          # before the import of a model that needs mamba_ssm
    from mamba_ssm import Mamba      # runs on a CPU, and on a GPU without a build

`python -m tustin.compat train.py --args` does the same for a script that nobody wants to change. TUSTIN_DISCRETIZATION
or `install(discretization=...)` sets the rule.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..discretize import Discretization

__all__ = ["NAMES", "install"]

NAMES = ("mamba_ssm", "causal_conv1d")
"""The packages that `install` can replace."""

_FOLDER = str(Path(__file__).parent / "packages")


def install(*, replace: bool = False, discretization: str | Discretization | None = None) -> tuple[str, ...]:
    """Make `import mamba_ssm` and `import causal_conv1d` work if the real packages are not installed.

    If mamba_ssm is installed, nothing is replaced. If only causal_conv1d is installed, it stays in use. Processes
    that Python's multiprocessing starts use the replacement too.

    Args:
        replace: Use the replacement even if the real packages are installed; they must not have been imported yet.
        discretization: The rule of the replacement, in the whole process, from now on. If not given, the rule stays:
            that of TUSTIN_DISCRETIZATION, or `mamba`.

    Returns:
        The names of the packages that are replaced.
    """
    from .rule import rule, set_rule  # here, because it reads the environment, and a mistake there is for the caller

    real = {name: origin for name in NAMES if (origin := _real(name))}
    if replace:
        if imported := [name for name in real if name in sys.modules]:
            raise RuntimeError(
                f"{imported[0]} is already imported from {real[imported[0]]}; call install(replace=True) before that"
            )
        _put(0)
    elif "mamba_ssm" not in real:
        _put(len(sys.path))
    if discretization is not None:
        set_rule(discretization)
    stand_ins = tuple(name for name in NAMES if replace or not (name in real or "mamba_ssm" in real))
    if "mamba_ssm" not in stand_ins and rule().name != "mamba":
        raise RuntimeError(
            f"the discretization {rule().name!r} has no effect on the mamba_ssm in {real['mamba_ssm']}; "
            "install(replace=True) uses our replacement instead"
        )
    return stand_ins


def _real(name: str) -> str | None:
    """Where a package comes from that is not ours, or None."""
    if name in sys.modules:
        origin = getattr(sys.modules[name], "__file__", None) or "elsewhere"
    else:
        spec = importlib.util.find_spec(name)
        origin = spec.origin if spec else None  # None for a folder of that name without code, too
    return None if origin is None or Path(origin).is_relative_to(_FOLDER) else origin


def _put(place: int) -> None:
    if _FOLDER in sys.path[: place + 1]:
        return
    sys.path[:] = [entry for entry in sys.path if entry != _FOLDER]
    sys.path.insert(place, _FOLDER)
