"""Files of a run that are not what was written: one sentence that names them, and never other weights."""

import hashlib
import json
import os
import random
import resource
import shutil

import pytest
import torch

import tustin
from tests.cli.test_cli import assert_one_error_line
from tests.killing import in_a_process
from tustin.cli import main
from tustin.support.files import LARGEST_TEXT, remove_unfinished, replacing
from tustin.train import RunFolder, train

from .small import small
from .test_commands import WORDS
from .test_resume import Signal


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that was stopped in its second epoch."""
    folder = tmp_path_factory.mktemp("stopped")
    with pytest.raises(Exception, match="after update 7"):
        train(small(folder), display=Signal(15, 7))
    return folder


@pytest.fixture
def folder(stopped, tmp_path):
    """A copy of it, to be damaged."""
    return shutil.copytree(stopped, tmp_path / "run")


def flipped(data, bit):
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_no_flipped_bit_continues_to_other_weights(folder):
    """Neither in the archive's directory nor in the rest."""
    path, run = folder / "training.pt", RunFolder(folder)
    data = path.read_bytes()
    directory = 8 * data.index(b"PK\x01\x02")
    chosen = random.Random(0)
    bits = chosen.sample(range(directory), 150) + chosen.sample(range(directory, 8 * len(data)), 150)
    for bit in bits:
        path.write_bytes(flipped(data, bit))
        with pytest.raises(RuntimeError, match=r"training\.pt' is damaged"):
            run.read_state()
    path.write_bytes(data)
    assert run.read_state()["step"] == 7


def write_with_sum(state, path):
    torch.save(state, path)
    path.write_bytes(path.read_bytes() + hashlib.sha256(path.read_bytes()).digest())


class Malicious:
    def __reduce__(self):
        return os.system, ("exit 1",)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ([1, 2], ["training.pt' is damaged: it holds a list"]),
        ({"step": "seven"}, ["training.pt' is damaged: step is 'seven'"]),
        (Malicious(), ["training.pt' is not a checkpoint of 'tustin train'"]),
        (None, ["training.pt' is damaged"]),
    ],
)
def test_a_checkpoint_that_is_none(folder, capsys, state, words):
    write_with_sum(state, folder / "training.pt")
    assert main(["train", "digits", *WORDS, "--out", str(folder)]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    for word in [*words, "--run.resume false"]:
        assert word in err
    assert "weights_only" not in err


def test_a_checkpoint_with_other_weights(folder):
    state = torch.load(folder / "training.pt", weights_only=True)
    state["model"].popitem()
    write_with_sum(state, folder / "training.pt")
    with pytest.raises(RuntimeError, match=r"training\.pt' does not fit the model: .*head.bias.*--run\.resume false"):
        train(small(folder))


def a_folder(path):
    path.unlink()
    path.mkdir()


def a_pipe(path):
    path.unlink()
    os.mkfifo(path)


def huge(path):
    with path.open("r+b") as file:
        file.truncate(LARGEST_TEXT + 1)


DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "garbage": lambda path: path.write_bytes(bytes(range(256)) * 8),
    "another type": lambda path: path.write_text("[1]\n"),
    "deep": lambda path: path.write_text("[" * 100_000),
    "digits": lambda path: path.write_text("1" * 10_000),
    "huge": huge,
    "folder": a_folder,
    "pipe": a_pipe,
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["training.pt", "summary.json"])
def test_damaged_files_are_named(folder, capsys, name, damage):
    (folder / "summary.json").write_text("{}")
    if name == "training.pt":
        (folder / "summary.json").unlink()
    DAMAGES[damage](folder / name)
    assert main(["train", "digits", *WORDS, "--out", str(folder)]) == 1
    assert_one_error_line(capsys, f"{folder / name}'")


@pytest.mark.parametrize("damage", ["empty", "truncated", "garbage", "pipe"])
def test_what_follows_from_the_checkpoint_is_written_again(folder, damage):
    for name in ("metrics.jsonl", "last.safetensors"):
        DAMAGES[damage](folder / name)
    train(small(folder))
    assert [record["epoch"] for record in RunFolder(folder).read_metrics()] == [1, 2]
    assert tustin.load(folder / "last.safetensors").num_classes == 10


@pytest.mark.parametrize("damage", ["truncated", "missing"])
def test_the_best_model_of_an_earlier_epoch_must_be_there(folder, damage):
    if damage == "missing":
        (folder / "best.safetensors").unlink()
    else:
        DAMAGES[damage](folder / "best.safetensors")
    with pytest.raises(
        RuntimeError, match=r"best.safetensors' is (damaged|missing): .* update 5; .*--run.resume false"
    ):
        train(small(folder))


def on_a_full_disk(folder):
    """There is room for small files, but not for the checkpoint."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        train(small(folder))
    except OSError as error:
        return str(error)


def test_full_disk_is_told_and_nothing_is_lost(folder, stopped):
    code, message = in_a_process(on_a_full_disk, folder)
    assert code == 0
    assert message == (
        f"cannot write '{folder}/training.pt': File too large; the disk is full, and the previous file is unchanged"
    )
    assert (folder / "training.pt").read_bytes() == (stopped / "training.pt").read_bytes()
    assert not list(folder.rglob("*.unfinished"))


def test_a_finished_run_needs_no_checkpoint(tmp_path):
    summary = train(small(tmp_path, epochs=1))
    (tmp_path / "training.pt").unlink()
    assert train(small(tmp_path, epochs=1)) == summary
    with pytest.raises(ValueError, match="holds a run with epochs 1, not 2"):
        train(small(tmp_path))


def test_a_summary_is_written_again(tmp_path):
    summary = train(small(tmp_path, epochs=1))
    (tmp_path / "summary.json").write_text("{")
    with pytest.raises(ValueError, match=r"summary.json' is damaged: .*the same command writes it again"):
        train(small(tmp_path, epochs=1))
    (tmp_path / "summary.json").unlink()
    assert json.dumps(train(small(tmp_path, epochs=1))) == json.dumps(summary)


def test_too_many_threads(tmp_path, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    with pytest.raises(ValueError, match=r"^run\.threads is 33, expected at most 32, 8 for each core$"):
        train(small(tmp_path, run__threads=33))


def test_only_files_that_nobody_writes_are_removed(tmp_path):
    ours, others = ".0123456789abcdef.unfinished", [".mine.unfinished", "0123456789abcdef.unfinished", "a.txt"]
    for name in (ours, *others):
        (tmp_path / name).touch()
    with replacing(tmp_path / "b.txt") as file:
        remove_unfinished(tmp_path)
        assert not (tmp_path / ours).exists()
        file.write(b"b")
    assert sorted(os.listdir(tmp_path)) == sorted([*others, "b.txt"])
