"""Killed at any moment, a run and a study end as if nothing had happened: every file has the same bytes."""

import itertools
import shutil
import signal

import pytest
from PIL import Image

from tests.killing import contents, in_a_process, killed_at
from tests.study.small import study
from tests.train.small import small
from tustin.cli import main
from tustin.data.decoded import mapped
from tustin.report.block import Block
from tustin.share import save_for_hub
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


def shared(folder):
    """The run beside it as a folder for others."""
    save_for_hub(folder.parent / "run", folder)


def on_finer_images(folder):
    words = ["--factors", "2", "--samples", "20", "--into", str(folder / "page.md"), "--json"]
    assert main(["study", "finer", str(folder), *words]) == 0


def with_decoded_images(folder):
    """Into a file for many runs."""
    mapped([folder.parent / "noise.png"], "RGB", folder)


def as_a_program(folder):
    words = ["--to", "torch", "--no-check", "--json", "--out", str(folder / "model.pt2")]
    assert main(["export", str(folder.parent / "run"), *words]) == 0
    (folder / "model.pt2").write_bytes(b"")  # it says when it was written


@pytest.mark.parametrize("work", [shared, on_finer_images, with_decoded_images, as_a_program])
def test_what_is_made_of_runs(tmp_path, work):
    """Killed at every moment and done again: the files of an undisturbed command, and nothing unfinished."""
    source, folder = tmp_path / "folder-before", tmp_path / "folder"
    if work is on_finer_images:
        assert in_a_process(a_study, folder)[0] == 0
        marks = Block("folder finer", "study")
        (folder / "page.md").write_text(f"{marks.begin}\n{marks.end}\n")
        folder.rename(source)
    else:
        source.mkdir()
        Image.effect_noise((8, 6), 50).save(tmp_path / "noise.png")
        if work is not with_decoded_images:
            assert in_a_process(a_run, tmp_path / "run")[0] == 0
    shutil.copytree(source, folder)
    code, moments = in_a_process(killed_at, 0, work, folder)
    assert code == 0
    assert moments > 1
    expected = contents(folder)
    for number in range(1, moments + 1):
        shutil.rmtree(folder)
        shutil.copytree(source, folder)
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
