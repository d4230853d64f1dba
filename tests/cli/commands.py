"""A command, and what it must print: JSON and nothing else, or one line that says what is wrong."""

import json
from typing import Any

import pytest

from tustin.cli import main


def told(capsys: pytest.CaptureFixture[str], *argv: object) -> Any:
    assert main([*map(str, argv), "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def refused(capsys: pytest.CaptureFixture[str], code: int, *argv: object) -> str:
    assert main([*map(str, argv)]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("tustin: error: ")
    assert err.count("\n") == 1
    return err
