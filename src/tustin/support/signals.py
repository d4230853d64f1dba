"""Stopping: politely, where a state must be saved first, and at once where nothing is at stake.

While a run is in progress a signal is noted, the update in progress finishes, the state is saved, and the run ends
(`stop_requests`). Before and after, Ctrl-C ends a command: it is a KeyboardInterrupt where that reaches `main`, and the
end of the process where it would be printed or get lost, as while libraries are imported (`interrupts`, `early`).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from .early import INTERRUPTED


class Interrupted(Exception):
    """The run was asked to stop and has saved its state."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = 128 + number
        """What shells expect of a program that a signal has ended: 130 for Ctrl-C, 143 for SIGTERM."""


class StopRequest:
    """The signal that has arrived, or 0. A second Ctrl-C does not wait."""

    def __init__(self) -> None:
        self.number = 0

    def note(self, number: int, frame: FrameType | None) -> None:
        if self.number and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.number = number


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Notes Ctrl-C and SIGTERM while it lasts; only the main thread can."""
    request = StopRequest()
    request.number = signal.SIGINT if _Interrupts.lost else 0
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.signal(number, request.note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# --- the whole process ------------------------------------------------------------------------------------------------


class _Interrupts:
    """Whether Ctrl-C was pressed and the command goes on all the same: a library has caught the exception."""

    lost = False


@contextmanager
def interrupts() -> Iterator[type[_Interrupts]]:
    """Ctrl-C while a command runs; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield _Interrupts
        return
    handler, hook = signal.signal(signal.SIGINT, _interrupt), sys.unraisablehook

    def unraisable(told: sys.UnraisableHookArgs, /) -> None:
        """What was raised where nothing can be: inside a callback from C, or while an object goes away."""
        if issubclass(told.exc_type, KeyboardInterrupt):
            os._exit(INTERRUPTED)
        hook(told)

    sys.unraisablehook = unraisable
    try:
        yield _Interrupts
    finally:
        _Interrupts.lost = False
        sys.unraisablehook = hook
        signal.signal(signal.SIGINT, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    _Interrupts.lost = True  # unless it reaches `main`
    while frame:
        if frame.f_code.co_filename.startswith("<frozen importlib"):  # libraries catch everything while they import
            os._exit(INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt
