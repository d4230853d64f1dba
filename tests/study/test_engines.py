"""Wherever and however often a study is carried out, it finds the same bits, and nothing is left behind."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tustin.study import read_study
from tustin.study.local_engine import LocalEngine
from tustin.support.signals import Interrupted

from .small import DISCRETIZATIONS, SEEDS, SETTINGS, Told, bits, study


def test_two_processes_find_what_one_finds(tmp_path, undisturbed):
    assert bits(study(tmp_path, LocalEngine(jobs=2)), tmp_path) == undisturbed[1]
    assert not multiprocessing.active_children()


def test_ray_finds_what_this_machine_finds(tmp_path, undisturbed, monkeypatch):
    ray_engine = pytest.importorskip("tustin.study.ray_engine", reason="Ray is not installed", exc_type=RuntimeError)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert bits(study(tmp_path, ray_engine.RayEngine(threads=1)), tmp_path) == undisturbed[1]
    assert not ray_engine.ray.is_initialized()


class OnceBegun(Told):
    """Does something to a run when its first epoch is behind it."""

    def __init__(self, folder, actions):
        super().__init__()
        self.folder, self.actions = folder, actions

    def refresh(self):
        for run in [run for run in self.actions if (self.folder / "runs" / run / "training.pt").exists()]:
            self.actions.pop(run)()


def kill_a_process():
    multiprocessing.active_children()[0].kill()


def test_a_killed_process_continues_and_finds_the_same(tmp_path):
    """Long enough that nobody finishes before the kill."""
    long = {"seeds": [0], "settings": {"epochs": 20, "run.save_every": 1}}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    expected = bits(study(whole, LocalEngine(jobs=1), **long), whole)
    display = OnceBegun(killed, {"zoh-0": kill_a_process})
    assert bits(study(killed, LocalEngine(jobs=1), display, **long), killed) == expected
    assert display.lines == ["zoh, seed 0: its process was killed, as the system does when memory runs out"]
    assert not multiprocessing.active_children()


def test_an_interrupt_saves_and_a_killed_run_stays_for_the_next_command(tmp_path):
    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)

    display = OnceBegun(tmp_path, {"zoh-0": kill_a_process, "bil-0": interrupt})
    with pytest.raises(Interrupted, match="stopped after 0 of 2 runs; unfinished runs are saved") as stopped:
        study(tmp_path, LocalEngine(jobs=1), display, seeds=[0], settings={"epochs": 20})
    assert stopped.value.exit_code == 130
    assert not multiprocessing.active_children()
    assert read_study(tmp_path).results == []
    assert (tmp_path / "runs" / "bil-0" / "training.pt").exists()


def test_ray_tells_of_a_killed_process(tmp_path, monkeypatch):
    ray_engine = pytest.importorskip("tustin.study.ray_engine", reason="Ray is not installed", exc_type=RuntimeError)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray_engine, "_execute_in", kill_itself)
    told = Told()
    left = study(tmp_path, ray_engine.RayEngine(threads=1), told, discretizations=["zoh"], seeds=[0])
    assert [(result.status, result.error[-7:]) for result in left.results] == [("failed", ", twice")]
    assert [line.startswith("zoh, seed 0: Ray lost its process: ") for line in told.lines] == [True, True]


def kill_itself(folder, run):
    os.kill(os.getpid(), signal.SIGKILL)


class Command:
    """`tustin study` as a process of its own."""

    def __init__(self, folder: Path) -> None:
        settings = [
            f"--{key}={json.dumps(value) if isinstance(value, dict) else value}" for key, value in SETTINGS.items()
        ]
        words = [
            "--no-control",
            "--discretizations",
            ",".join(DISCRETIZATIONS),
            "--seeds",
            str(len(SEEDS)),
            "--jobs",
            "1",
            "--out",
            str(folder),
        ]
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tustin", "study", "digits", *words, *settings, "--run.save_every", "1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def workers(self) -> list[int]:
        of_main = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(child) for child in of_main.read_text().split()]

    def kill_in_the_middle_of(self, run: str) -> None:
        """When this run has begun to train; then see to it that no other process goes on."""
        while not (self.folder / "runs" / run / "training.pt").exists():
            assert self.process.poll() is None, self.process.communicate()[1]
            time.sleep(0.005)
        workers = self.workers()
        self.process.kill()
        self.process.communicate(timeout=60)
        deadline = time.monotonic() + 30
        while any(Path(f"/proc/{worker}").exists() for worker in workers):
            assert time.monotonic() < deadline, "a process goes on without the one that started it"
            time.sleep(0.05)


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc")
def test_kill_twice_then_continue(tmp_path, undisturbed):
    Command(tmp_path).kill_in_the_middle_of("zoh-0")
    assert not list(tmp_path.glob("results/*.json"))
    Command(tmp_path).kill_in_the_middle_of("bil-0")
    first = (tmp_path / "results" / "zoh-0.json").read_bytes()
    assert bits(study(tmp_path), tmp_path) == undisturbed[1]
    assert (tmp_path / "results" / "zoh-0.json").read_bytes() == first, "what was done is not done again"
