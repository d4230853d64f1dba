"""Two processes train what one does, save once, and continue together."""

import json
import os
import signal
import subprocess
import sys

import pytest
import torch

from tustin.support.signals import Interrupted
from tustin.train import train

from .small import SMALL, small
from .test_resume import Signal

DEVICE = "cpu" if torch.accelerator.is_available() else "auto"  # whatever there is, two processes share the CPU
SETTINGS = {**SMALL, "run.device": DEVICE, "epochs": 1, "optim.batch_size": 128, "run.save_every": 4}
NAMED = {key.replace(".", "__"): value for key, value in SETTINGS.items()}

pytestmark = pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="needs gloo")


def torchrun(out):
    words = [f"--{key}={json.dumps(value) if isinstance(value, dict) else value}" for key, value in SETTINGS.items()]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "tustin"]
    command += ["train", "digits", *words, "--out", str(out)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one process leaves behind."""
    out = tmp_path_factory.mktemp("alone")
    train(small(out, **NAMED))
    return torch.load(out / "training.pt", weights_only=True)


def assert_agrees(out, alone):
    state = torch.load(out / "training.pt", weights_only=True)
    for name, value in alone["model"].items():
        torch.testing.assert_close(state["model"][name], value, rtol=0, atol=1e-4)
    assert state["records"][0]["train_loss"] == pytest.approx(alone["records"][0]["train_loss"], abs=1e-4)
    assert state["records"][0]["top1"] == pytest.approx(alone["records"][0]["top1"], abs=0.5)


def test_two_processes_agree_with_one_and_save_once(tmp_path, alone):
    done = torchrun(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("epoch 1/1") == 1
    assert "2 x 1 x 64" in done.stdout
    assert_agrees(tmp_path, alone)
    assert json.loads((tmp_path / "summary.json").read_text())["processes"] == 2


def test_two_processes_continue_in_the_middle_of_an_epoch(tmp_path, alone):
    with pytest.raises(Interrupted):
        train(small(tmp_path, **NAMED), display=Signal(signal.SIGTERM, 4))
    done = torchrun(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "continuing after update 4 of 10" in done.stdout
    assert_agrees(tmp_path, alone)
