"""`python -m tustin.compat SCRIPT [ARGS ...]` runs a script where mamba_ssm and causal_conv1d are our stand-ins."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Sequence

from . import install

_EPILOG = """\
TUSTIN_DISCRETIZATION sets the rule. 'tustin discretizations' lists all rules:

  TUSTIN_DISCRETIZATION=bil python -m tustin.compat train.py --epochs 3"""


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tustin.compat",
        description="Run a script with our replacement for mamba_ssm and causal_conv1d, where these are not installed.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--replace", action="store_true", help="use the replacement even if the real packages are installed"
    )
    parser.add_argument(
        "-m", action="store_true", dest="module", help="SCRIPT is the name of a module, as for python -m"
    )
    parser.add_argument("script", metavar="SCRIPT", help="the file to run")
    parser.add_argument("args", metavar="ARGS", nargs=argparse.REMAINDER, help="arguments of the script")
    args = parser.parse_args(argv)
    if not (args.module or os.path.exists(args.script)):
        parser.exit(2, f"tustin.compat: error: {args.script}: no such file\n")
    sys.argv = [args.script, *args.args]
    if not args.module:  # as Python does it; before the packages, which may have to come before these
        sys.path.insert(0, os.path.dirname(os.path.realpath(args.script)))
    try:
        stand_ins = install(replace=args.replace)
    except (RuntimeError, ValueError) as error:
        parser.exit(2, f"tustin.compat: error: {error}\n")
    if not stand_ins:
        print("tustin.compat: the installed mamba_ssm is used; --replace uses the replacement instead", file=sys.stderr)
    if args.module:
        runpy.run_module(args.script, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(args.script, run_name="__main__")


if __name__ == "__main__":
    main()
