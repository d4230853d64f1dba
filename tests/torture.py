"""A hundred times `kill -9` at moments that a seed has chosen, of a training and of a study: `make torture`."""

import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress

import psutil
import pytest

from tests.killing import CONTEXT, contents  # which every process has imported
from tests.study.test_command import words
from tests.support.test_signals import SCRIPT
from tests.train.small import SMALL
from tustin.cli import main

KILLS = 100
SETTINGS = words({name: value for name, value in SMALL.items() if name != "run.threads"})
TRAIN = ["train", "digits", *SETTINGS, "--run.threads", "1", "--run.save_every", "2"]
STUDY = ["study", "digits", *SETTINGS, "--no-control", "--discretizations", "zoh,bil", "--seeds", "1", "--jobs", "2"]
STUDY += ["--run.save_every", "2"]


def begin(command, folder):
    """In a process that need not import anything first: a kill in the meantime would show nothing."""
    process = CONTEXT.Process(target=_carry_out, args=([*command, "--out", str(folder)], errors_of(folder)))
    process.start()
    return process


def errors_of(folder):
    return folder.with_name("errors.txt")


def _carry_out(command, errors):
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.environ["GIT_DIR"] = os.devnull  # a commit in the meantime would be recorded, and differ
    fork = multiprocessing.get_context("fork")
    multiprocessing.get_context = lambda method: fork  # the workers of a study need not import anything, either
    sys.exit(main(command))


def finish(command, folder):
    """Undisturbed; returns how long it took."""
    start, process = time.monotonic(), begin(command, folder)
    process.join()
    assert process.exitcode == 0, errors_of(folder).read_text()
    return time.monotonic() - start


@pytest.mark.long
@pytest.mark.parametrize("command", [TRAIN, STUDY], ids=["train", "study"])
def test_a_hundred_kills(tmp_path, command):
    chosen, folder, kills = random.Random(0), tmp_path / "folder", 0
    finish(command, folder)
    expected = contents(folder)
    shutil.rmtree(folder)
    duration = finish(command, folder)  # the second time, when every file is in memory
    assert contents(folder) == expected
    while kills < KILLS:
        shutil.rmtree(folder)
        while True:
            process = begin(command, folder)
            process.join(chosen.uniform(0, 1.1) * duration)  # it ends by itself now and then
            kills += kill(process, chosen)
            if process.exitcode != -signal.SIGKILL:
                break
        assert process.exitcode == 0, errors_of(folder).read_text()
        assert contents(folder) == expected, f"after {kills} kills"
        print(f"{kills} kills")


def kill(process, chosen):
    """Kill a command, or one of the processes that carry out its runs; returns whether it was still there."""
    with suppress(psutil.NoSuchProcess):
        command = psutil.Process(process.pid)
        command.suspend()
        workers = command.children()
        if workers and chosen.random() < 0.3:
            chosen.choice(workers).kill()
            command.resume()  # it does that run once more
        else:
            command.kill()
            psutil.wait_procs(workers, timeout=60)  # they hold its locks
        process.join()
        return True
    process.join()
    return False


@pytest.mark.long
@pytest.mark.parametrize("program", [(sys.executable, "-m", "tustin"), (SCRIPT,)])
def test_ctrl_c_at_every_tenth_of_a_second(tmp_path, program):
    """From a tenth on: what comes before is Python's own start."""
    for moment in range(1, 41):
        command = [*program, *TRAIN, "--epochs", "200", "--out", str(tmp_path / str(moment))]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        time.sleep(moment / 10)
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=600)[1]
        assert process.returncode == 130, (moment, errors)
        assert "Traceback" not in errors
