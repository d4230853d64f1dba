"""`tustin train`, `tustin recipes` and `tustin eval` as a user meets them."""

import json
import signal

import pytest

import tustin
from tests.data.pictures import write_images
from tustin.cli import main
from tustin.train import display, recipes

from .small import SMALL
from .test_resume import Signal

WORDS = [f"--{key}={json.dumps(value) if isinstance(value, dict) else value}" for key, value in SMALL.items()]


def assert_one_error_line(capsys, *words):
    err = capsys.readouterr().err
    assert err.startswith("tustin: error: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err


def test_train_then_eval(tmp_path, capsys):
    assert main(["train", "digits", *WORDS, "--out", str(tmp_path), "--epochs", "1"]) == 0
    out = capsys.readouterr().out
    assert "epoch 1/1" in out
    assert "best epoch 1: top-1 accuracy" in out
    best = json.loads((tmp_path / "summary.json").read_text())["best"]

    assert main(["eval", str(tmp_path / "best.safetensors"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["metrics"] == {name: pytest.approx(best[name], rel=1e-5) for name in ("top1", "top5", "loss")}
    assert (told["samples"], told["skipped"], told["discretization"]) == (450, 0, "bil")
    assert main(["eval", str(tmp_path / "best.safetensors")]) == 0
    assert f"top-1 accuracy {best['top1']:.2f} %" in capsys.readouterr().out
    finer = ["--stride", "1", "--delta-scale", "0.25", "--conv-dilation", "2"]
    assert main(["eval", str(tmp_path / "best.safetensors"), *finer, "--json"]) == 0
    other = json.loads(capsys.readouterr().out)
    assert other["arguments"] == {"stride": 1, "delta_scale": 0.25, "conv_dilation": 2}
    assert other["metrics"]["loss"] != told["metrics"]["loss"]
    assert main(["eval", str(tmp_path / "best.safetensors"), "--delta-scale", "-1"]) == 1
    assert_one_error_line(capsys, "delta_scale must be a number above 0 and at most 1000, got -1.0")

    pictures = write_images(tmp_path / "pictures", train=1, val=1)
    assert main(["eval", str(tmp_path / "best.safetensors"), "--data.path", str(pictures)]) == 1
    assert_one_error_line(capsys, "the dataset has 2 classes", "10")


def test_train_and_eval_a_folder_with_a_corrupt_image(tmp_path, capsys):
    pictures = write_images(tmp_path / "pictures", train=8, val=4, size=(8, 8))
    for part in ("train", "val"):
        (pictures / part / "cat" / "1.png").write_bytes(b"broken")
    words = [*WORDS, "--out", str(tmp_path / "out"), "--data.name", "folder", "--data.path", str(pictures)]
    words += ["--optim.batch_size", "8", "--augment.shift", "0"]
    assert main(["train", "digits", *words]) == 1
    assert_one_error_line(capsys, "cannot read the image", "1.png", "--data.skip_corrupt true")
    assert main(["train", "digits", *words, "--data.skip_corrupt", "true", "--epochs", "1"]) == 0
    assert "1 images skipped" in capsys.readouterr().out
    evaluate = ["eval", str(tmp_path / "out" / "best.safetensors"), "--data.path", str(pictures)]
    assert main([*evaluate, "--data.skip_corrupt", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["samples"], told["skipped"]) == (7, 1)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signal_ends_with_a_code_of_its_own(tmp_path, capsys, monkeypatch, number, code):
    monkeypatch.setattr(display, "for_this_output", lambda: Signal(number, 3))
    assert main(["train", "digits", *WORDS, "--out", str(tmp_path)]) == code
    assert capsys.readouterr().err == "tustin: stopped after update 3 of 10 and saved; repeat the command to continue\n"


def test_recipes(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(["recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(recipes())
    assert max(map(len, lines)) <= 120


def test_recipes_in_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["recipes"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert text.split() == [word for name, about in recipes().items() for word in (name, *about.split())]


def test_print_config(capsys):
    assert main(["train", "digits", "--epochs", "3", "--print_config"]) == 0
    assert "epochs: 3\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["train", "digts"], 2, ["did you mean 'digits'"]),
        (["train", "digits", "--epoch", "3"], 2, ["did you mean 'epochs'"]),
        (["train", "digits", "--epochs", "0"], 2, ["epochs must be a whole number from 1 to"]),
        (["train", "digits", "--optim.batch_size", "x"], 2, ["optim.batch_size"]),
        (["train"], 2, ["RECIPE"]),
        (["train", "imagenet-vim-tiny"], 1, ["data.path is missing"]),
        (["train", "imagenet-vim-tiny", "--data.path", "/nowhere"], 1, ["no folder '/nowhere'"]),
        (["train", "digits", "--model.name", "vim_tinny"], 1, ["unknown model 'vim_tinny'"]),
        (["train", "digits", "--model.discretization", "bill"], 1, ["did you mean 'bil'"]),
        (["eval", "nowhere.safetensors"], 1, ["nowhere.safetensors"]),
        (["eval", "nowhere.safetensors", "--batch-size", "-1"], 2, ["--batch-size", "at least 1"]),
        (["eval", "nowhere.safetensors", "--workers", "-1"], 2, ["--workers", "at least 1"]),
        (["predict", "a.png", "--checkpoint", "b", "--score", "nan"], 2, ["--score", "from 0 to 1, got 'nan'"]),
    ],
)
def test_mistakes_are_one_line(tmp_path, monkeypatch, capsys, argv, code, words):
    monkeypatch.chdir(tmp_path)
    assert main(argv) == code
    assert_one_error_line(capsys, *words)


def test_eval_fetches_nothing_that_only_a_checkpoint_names(tmp_path, capsys, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a download was tried")

    monkeypatch.setattr("torchvision.datasets.cifar.download_and_extract_archive", refuse)
    model = tustin.create_model("vim_nano_patch4_32", depth=1, embed_dim=16)
    config = {"data.name": "cifar10", "data.path": str(tmp_path / "elsewhere")}
    tustin.save(model, tmp_path / "a.safetensors", metadata={"config": config})
    assert main(["eval", str(tmp_path / "a.safetensors")]) == 1
    assert_one_error_line(capsys, "cifar10 is not in", "elsewhere")
    assert not (tmp_path / "elsewhere").exists()
