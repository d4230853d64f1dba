"""The judge of the fuzzers can find fault."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from . import harness


def fail(text: str) -> Callable[[Any], int]:
    def main(argv: Any) -> int:
        print(text, file=sys.stderr)
        return 1

    return main


def connect(argv: Any) -> int:
    with socket.socket() as one:
        one.settimeout(0.01)
        one.connect_ex(("127.0.0.1", 1))
    return 0


def start(argv: Any) -> int:
    subprocess.run([sys.executable, "-c", ""], check=True)
    return 0


def write(argv: Any) -> int:
    with contextlib.suppress(OSError):  # it is not there, and is not made: the attempt counts
        Path("/nowhere/file").write_bytes(b"")
    return 0


@pytest.mark.parametrize(
    "main",
    [
        fail("tustin: error: TypeError: 'int' object is not iterable"),
        fail("Traceback (most recent call last):\ntustin: error: something is wrong here"),
        fail("tustin: error: the first of two sentences\ntustin: error: the second of two sentences"),
        fail("tustin: error: x"),
        fail(""),
        lambda argv: 3,
        connect,
        start,
        write,
    ],
    ids=["exception", "traceback", "two lines", "no sentence", "nothing", "other code", "network", "program", "file"],
)
def test_what_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, main: Any) -> None:
    monkeypatch.setattr(harness, "main", main)
    with pytest.raises(AssertionError, match="a case"):
        harness.check(["x"], tmp_path, "a case")
    assert harness.WATCH.allowed is None


def test_what_hangs_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(harness, "main", lambda argv: time.sleep(3600))
    monkeypatch.setattr(harness, "SECONDS", 1)
    with pytest.raises(harness.HangError, match="takes more than 1 s"):
        harness.check(["x"], tmp_path, "a case")


def test_one_sentence_and_success_are_fine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(harness, "main", fail("tustin: error: there is no such file"))
    assert harness.check(["x"], tmp_path, "a case") == 1
    monkeypatch.setattr(harness, "main", lambda argv: 0)
    assert harness.check(["x"], tmp_path, "a case") == 0
