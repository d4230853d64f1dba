"""What every fuzzer shares: how many cases, and what a command may do with input that is wrong.

`TUSTIN_FUZZ_CASES` is the number of cases over all fuzzers. A case is a seed, so that a failure can be repeated.
"""

from __future__ import annotations

import contextlib
import io
import os
import platform
import re
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import matplotlib.font_manager  # noqa: F401  makes its folders when it is first imported

from tustin.cli import main

FUZZERS = 10
CASES = max(1, int(os.environ.get("TUSTIN_FUZZ_CASES", "300")) // FUZZERS)
"""Of each fuzzer."""
SECONDS = 120
"""After which a command counts as hanging: no case needs more than a few."""

BARE = re.compile(
    r"Traceback|run again with --debug|\b(Type|Key|Attribute|Assertion|Index|Name|UnboundLocal|ZeroDivision|Recursion|"
    r"Overflow|Memory|NotImplemented|Unicode\w*)Error\b|StopIteration|struct\.error|Expected a <class"
)
"""What nobody wrote for a user."""


platform.processor()  # Python starts a program for this, once; libraries ask when they are first imported

FORBIDDEN = ("socket.connect", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork")


class NotStarted(BaseException):
    """Raised in place of a training: its settings are fine, and the case ends here."""


class HangError(BaseException):
    """Raised inside a command that takes too long; `main` catches no such thing."""


class Watch:
    """Notes what a command does that it should not: connections, programs, and files outside of `allowed`."""

    def __init__(self) -> None:
        self.allowed: Path | None = None
        self.seen: list[str] = []
        sys.addaudithook(self)  # for the life of the process; it does nothing while nothing is watched

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.allowed is None:
            return
        if event in FORBIDDEN and arguments[0] != "git":  # which the record of a run asks for the commit
            self.seen.append(f"{event} {arguments[:2]}")
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if writes or event in ("os.mkdir", "os.remove", "os.rename", "os.rmdir"):
            self._note(event, arguments[0])

    def _note(self, event: str, path: Any) -> None:
        assert self.allowed is not None
        place = Path(os.fsdecode(path)).resolve() if isinstance(path, str | bytes | os.PathLike) else None
        inside = place is None or place == Path(os.devnull) or place.is_relative_to(self.allowed)
        if not inside:
            self.seen.append(f"{event} {place}")


WATCH = Watch()


def check(argv: list[str], folder: Path, told: str) -> int:
    """Run a command in `folder`. It may succeed, or fail with one line; `told` names the case in a failure of this."""
    out, err = io.StringIO(), io.StringIO()
    before, bytecode, temporary = Path.cwd(), sys.dont_write_bytecode, tempfile.tempdir
    os.chdir(folder)
    code = 0
    sys.dont_write_bytecode, WATCH.seen, WATCH.allowed = True, [], folder.resolve()
    tempfile.tempdir = str(folder)  # where 'study plan' times a few updates
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _no_hanging(told, argv):
            code = main(argv)
    except NotStarted:
        return 0
    finally:
        WATCH.allowed, sys.dont_write_bytecode, tempfile.tempdir = None, bytecode, temporary
        os.chdir(before)
    case = f"{told}: tustin {' '.join(map(repr, argv))[:2000]}\n{err.getvalue()[:3000]}"
    assert not WATCH.seen, f"{WATCH.seen[:3]} in {case}"
    assert code in (0, 1, 2), f"exit code {code} of {case}"
    assert not BARE.search(err.getvalue()), case
    if code:
        lines = [line for line in err.getvalue().splitlines() if not line.startswith("tustin: skipped ")]
        assert len(lines) == 1, case
        assert re.fullmatch(r"tustin: error: .{12,}", lines[0]), case
    return code


@contextlib.contextmanager
def _no_hanging(told: str, argv: list[str]) -> Iterator[None]:
    def stop(number: int, frame: Any) -> None:
        raise HangError(f"{told}: tustin {argv} takes more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def cases(name: str) -> Iterator[tuple[Random, Path, str]]:
    """For each case its own generator, its own empty folder, and its name."""
    for number in range(CASES):
        with tempfile.TemporaryDirectory() as folder:
            yield Random(f"{name} {number}"), Path(folder), f"{name}, case {number}"
