"""Command lines, recipes and small runs: right, or refused with a sentence."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import tustin.study.runner
import tustin.train
from tustin.train import recipes
from tustin.train.config import Config, keys
from tustin.train.recipe import find

from .harness import NotStarted, cases, check
from .mutations import WORDS, mutated_bytes, mutated_words

COMMANDS: list[list[str]] = [
    ["discretizations", "--json"],
    ["discretizations", "--html", "rules.html"],
    ["recipes"],
    ["doctor", "--gpu-check", "found.json", "--device", "cpu", "--json"],
    ["doctor", "--markdown", "nowhere.md", "--dtype", "float32"],
    ["info", "vim_nano_patch2_8", "--img-size", "16", "--batch-size", "2", "--discretization", "zoh"],
    ["train", "digits", "--epochs", "3", "--optim.base_lr", "0.1", "--model.args.depth", "1"],
    ["train", "coco-tiny-cpu", "--data.path", "nowhere", "--detection.channels", "8", "--print_config"],
    ["study", "digits", "--discretizations", "zoh,bil", "--seeds", "2", "--epochs", "1", "--threads-per-run", "1"],
    ["study", "digits", "--no-control", "--discretizations", "zoh", "--seeds", "1", "--epochs", "1"],
    ["study", "status", "nowhere", "--json"],
    ["study", "plan", "digits", "--std", "0.5", "--seeds", "2", "--discretizations", "zoh,bil", "--json"],
    ["study", "report", "nowhere"],
    ["study", "report", "nowhere", "--into", "page.md"],
    ["study", "finer", "nowhere", "--samples", "10", "--factors", "2,4", "--json"],
    ["eval", "nowhere.safetensors", "--data.name", "folder", "--batch-size", "4", "--workers", "0"],
    ["info", "nowhere.safetensors", "--import", "nowhere.py"],
    ["eval", "nowhere.safetensors", "--stride", "2", "--delta-scale", "0.25", "--conv-dilation", "2"],
    ["predict", "nowhere.png", "--checkpoint", "nowhere.safetensors", "--top", "3", "--score", "0.5"],
    ["export", "nowhere.safetensors", "--to", "onnx", "--out", "model.onnx", "--dynamic-size", "--no-check"],
]


def with_settings(random: Random, words: list[str]) -> list[str]:
    """Some settings more, each with a value that may be anything."""
    chosen = random.choices(list(keys()), k=random.randint(0, 4))
    return [*words, *(word for key in chosen for word in (f"--{key}", _value(random, key)))]


def _value(random: Random, key: str) -> str:
    return random.choice(WORDS) if random.random() < 0.7 else str(Config().get(key)).lower()


@pytest.fixture
def _nothing_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*args: Any, **kwargs: Any) -> Any:
        raise NotStarted

    monkeypatch.setattr(tustin.train, "train", stop)
    monkeypatch.setattr(tustin.study.runner, "run_study", stop)


@pytest.mark.usefixtures("_nothing_is_trained")
def test_command_lines() -> None:
    for random, folder, told in cases("command lines"):
        words = random.choice(COMMANDS)
        if words[0] in ("train", "study"):
            words = with_settings(random, words)
        check(mutated_words(random, words) if random.random() < 0.6 else words, folder, told)


PIECES = [b"a: &a [*a]\n", b"<<: {epochs: 3}\n", b"epochs: 3\n", b"? [1]\n: 2\n", b"--- \n", b"%YAML 1.1\n", b"\xff"]
PIECES += [b"\0", b"\t", b"[" * 2000, b"1" * 5000, b"!!binary x", b"!!set {a}", b"2001-99-99", b"- "]
PIECES += [b"model:\n  args: {depth: &x 1}\n"]


@pytest.mark.usefixtures("_nothing_is_trained")
def test_recipes() -> None:
    texts = [find(name).read_bytes() for name in recipes()]
    for random, folder, told in cases("recipes"):
        lines = random.choice(texts).splitlines(keepends=True)
        place = random.randrange(len(lines))
        match random.randrange(5):
            case 0:
                name, colon, _ = lines[place].partition(b":")
                lines[place] = name + colon + b" " + random.choice(WORDS).encode() + b"\n"
            case 1:
                lines.insert(random.randrange(len(lines)), lines[place])
            case 2:
                lines.insert(place, random.choice(PIECES))
            case 3:
                lines[place] = b"  " + lines[place]
            case 4:
                lines = [mutated_bytes(random, b"".join(lines))]
        (folder / "mine.yaml").write_bytes(b"".join(lines))
        check(["train", "mine.yaml"], folder, told)


SMALL = {"updates": 1, "model.args.depth": 1, "model.args.embed_dim": 16, "optim.batch_size": 8, "run.threads": 1}
SMALL |= {"run.device": "cpu", "run.eval_batch_size": 225, "out": "out"}
VALUES: dict[str, list[Any]] = {
    "updates": [1, 2],
    "seed": [0, 2**63 - 1],
    "data.seed": [0, 2**63 - 1],
    "data.num_classes": [10, 3],
    "model.discretization": ["zoh", "rk4_raw", "zo"],
    "model.img_size": [8, 4, 1, 9],
    "model.drop_path_rate": [0.0, 0.999, 0.5],
    "model.name": ["vim_nano_patch2_8", "vim_nano_patch1_8", "vim_nano_patch4_32", "resnet18"],
    "model.args.d_state": [1, 3, 17],
    "model.args.patch_size": [1, 2, 8, 9],
    "model.args.stride": [1, 3, 100],
    "model.args.in_chans": [1, 3, 2],
    "model.args.global_pool": ["avg", "token", "max", ""],
    "model.args.dt_init_backward": ["mamba", "vim", "x"],
    "model.args.dt_init_forward": ["long", "vim", "x"],
    "model.args.d_conv": [1, 3, 0, 64],
    "model.args.conv_dilation": [1, 3, 0, 64],
    "model.args.delta_scale": [0.25, 0, 1000.0],
    "model.args.state": [True, False, 1],
    "model.args.dynamic_img_size": [True, False],
    "model.args.drop_rate": [0.5, 0.999],
    "model.args.backend": ["reference", "native", "x"],
    "augment.mixup": [0.0, 0.8, 100],
    "augment.cutmix": [1.0, 100],
    "augment.shift": [0, 7],
    "augment.repeats": [1, 3, 100],
    "optim.name": ["adamw", "sgd", "lamb", "lion", "adafactor"],
    "optim.batch_size": [1, 7, 8, 1347, 1348, 10**9],
    "optim.accumulate": [1, 2, 3, 10**9],
    "optim.base_lr": [0.0, 1000.0],
    "optim.weight_decay": [0.0, 100.0],
    "optim.schedule": ["cosine", "linear", "step", "tanh"],
    "optim.warmup_epochs": [0, 1, 10**9],
    "optim.warmup_updates": [0, 1, 10**9],
    "optim.warmup_lr": [0.0, 1000.0],
    "optim.min_lr": [0.0, 1000.0],
    "optim.clip": [1e-300, 1e300],
    "optim.smoothing": [0.0, 0.999],
    "optim.ema": [1e-9, 0.999999],
    "run.eval_every": [1, 10**9],
    "run.eval_updates": [1, 10**9],
    "run.eval_batch_size": [450, 10**9],
    "run.save_every": [0, 1, 10**9],
    "run.resume": [True, False, "null"],
}


@pytest.mark.filterwarnings("ignore")  # of PyTorch, for a schedule that never gets anywhere
def test_small_runs() -> None:
    """Every value is in its range: what a run does with it must be as good."""
    for random, folder, told in cases("runs"):
        chosen = {name: random.choice(VALUES[name]) for name in random.sample(sorted(VALUES), k=3)}
        words = [f"--{name}={value}" for name, value in (SMALL | chosen).items()]
        check(["train", "digits", *words], folder, told)
