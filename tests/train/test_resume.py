"""A run that was stopped, politely or not, ends with the bits of one that was not."""

import os
import signal
import subprocess
import sys

import pytest

from tustin.support.signals import Interrupted, stop_requests
from tustin.train import Display, RunFolder, train

from .small import small, weights

RECIPE = {"optim__ema": 0.9, "model__drop_path_rate": 0.2, "model__args": {"embed_dim": 16, "depth": 2, "d_state": 4}}
"""With all that might carry a state from one update to the next."""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    out = tmp_path_factory.mktemp("uninterrupted")
    train(small(out, **RECIPE))
    return {name: weights(out, name) for name in ("last", "best", "ema")}


class Signal(Display):
    """Sends a signal to this process after an update."""

    def __init__(self, number, at):
        self.number, self.at = number, at

    def update(self, step, updates, place):
        if step == self.at:
            os.kill(os.getpid(), self.number)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("at", [5, 7])  # the end of an epoch, before it is evaluated, and the middle of the next
def test_signal_saves_and_the_next_run_continues(tmp_path, uninterrupted, number, code, at):
    config = small(tmp_path, **RECIPE)
    with pytest.raises(Interrupted, match=f"after update {at} of 10") as stopped:
        train(config, display=Signal(number, at))
    assert stopped.value.exit_code == code
    assert RunFolder(tmp_path).read_state()["step"] == at
    train(config)
    assert {name: weights(tmp_path, name) for name in uninterrupted} == uninterrupted


def test_kill_in_the_middle_of_an_epoch(tmp_path, uninterrupted):
    program = f"""
import sys
sys.path.insert(0, {str(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))!r})
from tests.train.test_resume import *
train(small({str(tmp_path)!r}, run__save_every=3, **RECIPE), display=Signal(signal.SIGKILL, 8))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert RunFolder(tmp_path).read_state()["step"] == 6
    train(small(tmp_path, **RECIPE))  # nor does a lock of the dead stand in the way
    assert {name: weights(tmp_path, name) for name in uninterrupted} == uninterrupted
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == 2


def test_second_interrupt_does_not_wait():
    with stop_requests() as request:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)  # launchers repeat themselves; people who press twice mean it
        assert request.number == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_second_process_is_refused(tmp_path):
    program = f"from tustin.train import load_recipe, train; train(load_recipe('digits', {{'out': {str(tmp_path)!r}}}))"
    with RunFolder(tmp_path).locked():
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert "another process is writing into" in done.stderr
