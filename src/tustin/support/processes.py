"""Processes: how many can work at once, and that none outlives the one that started it."""

from __future__ import annotations

import multiprocessing
import os
import threading

__all__ = ["end_with_parent", "usable_cores"]


def usable_cores() -> int:
    """The processor's cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def end_with_parent() -> None:
    """From now on this process ends when the one that started it does, even if that was killed."""
    threading.Thread(target=_watch, daemon=True).start()


def _watch() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
