"""The `tustin` command: one table of commands, and the promise that a mistake is one line and not a traceback."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

from ..support.early import INTERRUPTED
from ..support.extras import how_to_get
from ..support.signals import Interrupted, interrupts
from . import bench, discretizations, doctor, eval, export, info, predict, recipes, study, train
from .command import UsageError, parse

__all__ = ["COMMANDS", "main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code: 0 done, 1 failed, 2 wrong usage, 130 interrupted, 141 pipe closed.

    A training that was stopped by a signal has saved its state and ends with 130 (Ctrl-C) or 143 (SIGTERM). A study of
    which some runs have failed ends with 3.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    debug = "--debug" in argv  # asked for here, because a mistake may come before the arguments are parsed
    try:
        with interrupts() as pressed, nullcontext() if debug else _warnings_for_people():
            code = _run(argv, debug)
            return INTERRUPTED if pressed.lost else code  # where a library has made something else of it
    except KeyboardInterrupt:
        if debug:
            raise
        return INTERRUPTED


@contextmanager
def _warnings_for_people() -> Iterator[None]:
    """One line each, without the place in the code, which --debug shows."""

    def line(message: Warning | str, *about: object) -> str:
        return f"tustin: warning: {' '.join(str(message).split())}\n"

    before = warnings.formatwarning
    warnings.formatwarning = line  # type: ignore[assignment]
    try:
        yield
    finally:
        warnings.formatwarning = before


def _run(argv: list[str], debug: bool) -> int:
    try:
        if args := parse(COMMANDS, argv):
            args.run(args)
        sys.stdout.flush()  # a closed pipe must show up here, not while the interpreter shuts down
        return 0
    except BrokenPipeError:
        _abandon_output()
        return 141
    except Interrupted as stopped:
        print(f"tustin: {stopped}", file=sys.stderr)
        return stopped.exit_code
    except Exception as error:
        if debug and not isinstance(error, UsageError):
            raise
        return _fail(error)


def _fail(error: Exception) -> int:
    text = " ".join(str(error).split())  # one line, whatever the message holds
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    elif isinstance(error, ModuleNotFoundError) and (extra := how_to_get(error)):
        text = extra
    elif not isinstance(error, UsageError | ValueError | RuntimeError | OSError):  # nobody wrote this for a user
        text = f"{type(error).__name__}: {text} (run again with --debug for the traceback)"
    print(f"tustin: error: {text}", file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:  # the disk is full, say: the line above has told
        _abandon_output()
    code: int = getattr(error, "exit_code", 1)
    return code


def _abandon_output() -> None:
    """Drop what is still buffered; the interpreter would try to write it at exit and complain once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


COMMANDS = {
    command.name: command
    for command in (
        discretizations.COMMAND,
        doctor.COMMAND,
        train.COMMAND,
        recipes.COMMAND,
        study.COMMAND,
        eval.COMMAND,
        info.COMMAND,
        predict.COMMAND,
        export.COMMAND,
        bench.COMMAND,
    )
}
"""Every command, in the order of the help: a new one needs a file and a line here."""
