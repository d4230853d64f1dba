"""Ctrl-C from the first moment: once this module is imported, Ctrl-C ends our command at once and without a message.

It is imported before everything else, when nothing can be lost yet. Otherwise Ctrl-C while libraries are imported would
be a traceback, or would get lost.
"""

import os
import sys
from _signal import SIGINT, signal  # type: ignore[import-not-found]  # importing `signal` takes longer than all this

INTERRUPTED: int = 128 + SIGINT
"""What shells expect of a program that Ctrl-C has ended."""


def is_command() -> bool:
    """Whether this process was started as `tustin` or `python -m tustin`."""
    name = sys.argv[0] if sys.argv else ""
    if name == "-m":  # as long as Python looks for the module
        return sys.orig_argv[sys.orig_argv.index("-m") + 1] == "tustin"
    return os.path.basename(name) == "tustin"


def _end(number: int, frame: object) -> None:
    os._exit(INTERRUPTED)


if is_command():
    try:  # noqa: SIM105  contextlib would be one import more
        signal(SIGINT, _end)
    except ValueError:
        pass  # only the main thread can
