"""Killed at any moment, a run and a study end as if nothing had happened: every file has the same bytes."""

import itertools
import shutil
import signal

import pytest

from tests.killing import contents, in_a_process, killed_at
from tests.study.small import study
from tests.train.small import small
from tustin.train import train


def a_run(folder):
    """With an average of the weights, for which there is a file more."""
    train(small(folder, optim__ema=0.9))


def a_study(folder):
    study(folder, discretizations=["zoh"], seeds=[0], settings={"epochs": 1})


def a_study_that_keeps_nothing(folder):
    study(folder, discretizations=["zoh"], seeds=[0], settings={"epochs": 1}, keep="nothing")


@pytest.mark.parametrize("work", [a_run, a_study, a_study_that_keeps_nothing])
def test_killed_at_every_moment_then_continued(tmp_path, work):
    folder = tmp_path / "folder"  # one name for all: it is in the files
    code, moments = in_a_process(killed_at, 0, work, folder)
    assert code == 0
    assert moments > 10
    expected = contents(folder)
    for number in range(1, moments + 1):
        shutil.rmtree(folder)
        assert in_a_process(killed_at, number, work, folder)[0] == -signal.SIGKILL
        assert in_a_process(work, folder)[0] == 0
        assert contents(folder) == expected, f"killed at moment {number} of {moments}"


def test_killed_again_and_again(tmp_path):
    folder = tmp_path / "folder"
    assert in_a_process(a_run, folder)[0] == 0
    expected = contents(folder)
    shutil.rmtree(folder)
    for number in itertools.count(1):  # a little later each time
        code, _ = in_a_process(killed_at, number, a_run, folder)
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert contents(folder) == expected
