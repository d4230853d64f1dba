"""Stopping politely: a signal is noted, the update in progress finishes, the state is saved, and the run ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


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
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.signal(number, request.note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
