"""The terminal, set up once for everybody: the console, the look of a table, and how far a long run is."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:  # rich is imported where something is drawn: commands start quickly
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

__all__ = ["Report", "bar", "columns", "console", "drawn", "duration", "pairs", "progress", "table"]

UNLIMITED = 10_000
"""Columns of what is no terminal: a table is as wide as it needs to be there, and no line is broken."""
SECONDS_BETWEEN_LINES = 10.0
SECONDS_BETWEEN_FRAMES = 0.5

Report: TypeAlias = Callable[[str, int, int], None]
"""Told what is being done, and how many steps of how many are done."""


def console(stderr: bool = False) -> Console:
    """One that prints text as it is, a formula being no markup; plain, and of any width, where no terminal is."""
    from rich.console import Console

    limited = (sys.stderr if stderr else sys.stdout).isatty() or os.environ.get("COLUMNS")
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, width=None if limited else UNLIMITED)


def columns() -> int:
    """Letters that fit into a line of the standard output."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or os.environ.get("COLUMNS") else UNLIMITED


def drawn(draw: Callable[[Console], None]) -> str:
    """The text of what is drawn on a console for the standard output, in letters that it has.

    It is for the caller to write, because rich would end the program on a closed pipe.
    """
    here = console()
    with here.capture() as capture:
        draw(here)
    text = "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, errors="replace").decode(encoding)  # a terminal without Greek letters


def table(header: Sequence[str], words: Collection[str] = ()) -> Table:
    """An empty table. The first column names the rows; the others hold numbers, or words.

    It breaks no word. Columns that find no room beside the others stand below them, with the names once more.

    Args:
        header: Titles of the columns.
        words: Those that hold words, which may wrap; the first column is among them only if its names may.
    """
    from rich import box

    from .word_table import WordTable

    made = WordTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    names, *others = header
    made.add_column(names, style="bold", no_wrap=names not in words, overflow="fold")
    for title in others:
        made.add_column(title, justify="left" if title in words else "right", overflow="fold")  # and lose nothing
    return made


def pairs(rows: Iterable[tuple[str, str]]) -> Table:
    """Names and values, a line each."""
    from rich.table import Table

    made = Table.grid(padding=(0, 2))
    made.add_column(style="bold", no_wrap=True)
    made.add_column()
    for row in rows:
        made.add_row(*row)
    return made


def bar(stderr: bool = True, auto_refresh: bool = True) -> Progress:
    """A bar with a text and the time that is left, which disappears in the end."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    per_second = 1 / SECONDS_BETWEEN_FRAMES
    where = console(stderr)
    return Progress(*columns, console=where, transient=True, auto_refresh=auto_refresh, refresh_per_second=per_second)


@contextmanager
def progress(command: str | None = None, patience: float = 0.0) -> Iterator[Report]:
    """How far a long run is, on the error stream.

    Args:
        command: Begins each of the lines that tell of it now and then where no terminal is; there are none without.
        patience: Seconds after which a bar appears on a terminal.
    """
    if sys.stderr.isatty():
        with _bar(patience) as report:
            yield report
    else:
        yield _lines(command) if command else lambda text, done, total: None


@contextmanager
def _bar(patience: float) -> Iterator[Report]:
    shown = bar(auto_refresh=False)  # by a thread of its own it would disturb what is being timed
    task = shown.add_task("starting")
    begin, last = time.monotonic(), -1.0

    def report(text: str, done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        shown.update(task, description=text, completed=done, total=total)
        if now - begin >= patience and not shown.live.is_started:
            shown.start()
        if now - last > SECONDS_BETWEEN_FRAMES or done == total:
            shown.refresh()
            last = now

    try:
        yield report
    finally:
        shown.stop()


def _lines(command: str) -> Report:
    last_text, last_time = "", 0.0

    def report(text: str, done: int, total: int) -> None:
        nonlocal last_text, last_time
        now = time.monotonic()
        if text != last_text or now - last_time > SECONDS_BETWEEN_LINES:
            print(f"{command}: {text}, {done} of {total} done", file=sys.stderr, flush=True)
            last_text, last_time = text, now

    return report


def duration(seconds: float) -> str:
    """Two figures are enough for a guess: 40 s, 12 min, 3 h 20 min, 2 days 5 h."""
    minutes = round(seconds / 60)
    if seconds < 99:
        return f"{seconds:.0f} s"
    if minutes < 99:
        return f"{minutes} min"
    hours = round(seconds / 3600)
    return f"{minutes // 60} h {minutes % 60} min" if hours < 48 else f"{hours // 24} days {hours % 24} h"
