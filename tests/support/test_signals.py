"""Ctrl-C at any moment of a command's life: exit code 130, no traceback, and never lost."""

import os
import signal
import subprocess
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest

from tustin.cli import COMMANDS, main
from tustin.support.signals import interrupts, stop_requests

SCRIPT = str(Path(sysconfig.get_path("scripts")) / "tustin")
PRESS = """
import os, sys

class Press:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["PRESS_AT"]:
            os.kill(os.getpid(), 2)

sys.meta_path.insert(0, Press())
"""


@pytest.mark.parametrize(
    ("command", "module"),
    [
        ([SCRIPT], "tustin.support.imports"),
        ([SCRIPT], "torch"),
        ([SCRIPT], "tustin.cli"),
        ([SCRIPT], "timm"),
        ([sys.executable, "-m", "tustin"], "signal"),
        ([sys.executable, "-m", "tustin"], "tustin.discretize"),
        ([sys.executable, "-m", "tustin"], "torch._C"),
        ([sys.executable, "-m", "tustin"], "tustin.train.engine"),
        ([sys.executable, "-m", "tustin"], "sklearn.datasets"),
    ],
)
def test_while_the_command_is_imported(tmp_path, command, module):
    (tmp_path / "sitecustomize.py").write_text(PRESS)  # which Python imports before anything else
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "PRESS_AT": module}
    words = ["train", "digits", "--out", str(tmp_path / "out"), "--epochs", "1", "--run.threads", "1"]
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=300, env=env)
    assert (done.returncode, done.stderr) == (130, "")


def test_a_program_that_imports_tustin_keeps_its_own_way():
    handler = "signal.getsignal(signal.SIGINT)"
    program = f"import signal; before = {handler}; import tustin; assert {handler} is before"
    subprocess.run([sys.executable, "-c", program, "-m", "tustin"], check=True, timeout=120)


def press():
    os.kill(os.getpid(), signal.SIGINT)


def swallowed():
    try:
        press()
    except BaseException:  # as a library does
        return


def test_what_a_library_catches_is_not_lost(monkeypatch, capsys):
    def run(args):
        swallowed()

    monkeypatch.setitem(COMMANDS, "doctor", replace(COMMANDS["doctor"], run=run))
    before = signal.getsignal(signal.SIGINT)
    assert main(["doctor"]) == 130
    assert signal.getsignal(signal.SIGINT) is before
    assert capsys.readouterr() == ("", "")


def test_what_a_library_catches_stops_a_run_that_begins_afterwards():
    with interrupts():
        swallowed()
        with stop_requests() as request:
            assert request.number == signal.SIGINT
    with stop_requests() as request:
        assert request.number == 0


def test_where_nothing_can_be_raised():
    program = """
import os, signal
from tustin.support.signals import interrupts

class Going:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)

with interrupts():
    Going()
print("lost")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
