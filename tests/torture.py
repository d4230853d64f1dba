"""A hundred times `kill -9` at moments that a seed has chosen, of a training and of a study: `make torture`."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.killing import contents
from tests.study.test_command import words
from tests.support.test_signals import SCRIPT
from tests.train.small import SMALL

KILLS = 100
SETTINGS = words({name: value for name, value in SMALL.items() if name != "run.threads"})
TRAIN = ["train", "digits", *SETTINGS, "--run.threads", "1", "--run.save_every", "2"]
STUDY = [
    "study",
    "digits",
    *SETTINGS,
    "--no-control",
    "--discretizations",
    "zoh,bil",
    "--seeds",
    "1",
    "--jobs",
    "2",
    "--run.save_every",
    "2",
]


def begin(command, folder, program=(sys.executable, "-m", "tustin")):
    words = [*program, *command, "--out", str(folder)]
    environment = os.environ | {"GIT_DIR": os.devnull}  # a commit in the meantime would be recorded, and differ
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)


def finish(command, folder):
    """Undisturbed; returns how long it took."""
    start, process = time.monotonic(), begin(command, folder)
    errors = process.communicate(timeout=600)[1]
    assert process.returncode == 0, errors
    return time.monotonic() - start


def workers_of(process):
    """The processes of a study that carry out its runs, as far as the system tells."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    found = children.read_text().split() if children.exists() else []
    return [int(child) for child in found if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


@pytest.mark.long
@pytest.mark.parametrize("command", [TRAIN, STUDY], ids=["train", "study"])
def test_a_hundred_kills(tmp_path, command):
    chosen, folder, kills = random.Random(0), tmp_path / "folder", 0
    duration = finish(command, folder)
    expected = contents(folder)
    while kills < KILLS:
        shutil.rmtree(folder)
        while True:
            process = begin(command, folder)
            time.sleep(chosen.uniform(0.2, 1.1) * duration)  # it ends by itself now and then
            if process.poll() is not None:
                break
            workers = workers_of(process)
            if workers and chosen.random() < 0.3:  # of a worker only: the command itself continues its run
                os.kill(chosen.choice(workers), signal.SIGKILL)
                kills += 1
                break
            process.kill()
            process.communicate()
            kills += 1
        errors = process.communicate(timeout=600)[1]
        assert process.returncode == 0, errors
        assert contents(folder) == expected, f"after {kills} kills"


@pytest.mark.long
@pytest.mark.parametrize("program", [(sys.executable, "-m", "tustin"), (SCRIPT,)])
def test_ctrl_c_at_every_tenth_of_a_second(tmp_path, program):
    """From a tenth on: what comes before is Python's own start."""
    for moment in range(1, 41):
        process = begin([*TRAIN, "--epochs", "200"], tmp_path / str(moment), program)
        time.sleep(moment / 10)
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=600)[1]
        assert process.returncode == 130, (moment, errors)
        assert "Traceback" not in errors
