"""How far a long run is: a bar on a terminal, a line now and then elsewhere; always on the error stream."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def shown(command: str = "tustin bench") -> Iterator[Callable[[str, int, int], None]]:
    """Gives a function to call with what is being done, the steps done, and all steps."""
    if sys.stderr.isatty():
        with _bar() as report:
            yield report
    else:
        yield _lines(command)


@contextmanager
def _bar() -> Iterator[Callable[[str, int, int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    # Drawn rarely and not by a thread of its own: it must not disturb what is being timed.
    with Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as progress:
        bar = progress.add_task("starting")
        last = -1.0

        def report(text: str, done: int, total: int) -> None:
            nonlocal last
            progress.update(bar, description=text, completed=done, total=total)
            if time.monotonic() - last > 0.5 or done == total:
                progress.refresh()
                last = time.monotonic()

        yield report


def _lines(command: str) -> Callable[[str, int, int], None]:
    last_text, last_time = "", 0.0

    def report(text: str, done: int, total: int) -> None:
        nonlocal last_text, last_time
        now = time.monotonic()
        if text != last_text or now - last_time > _SECONDS_BETWEEN_LINES:
            print(f"{command}: {text}, {done} of {total} done", file=sys.stderr, flush=True)
            last_text, last_time = text, now

    return report
