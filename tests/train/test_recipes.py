"""Every shipped recipe trains: two updates on images of the right size, with one block and a small batch."""

import pytest
import torch

import tustin
from tests.data.pictures import write_images
from tustin.train import load, recipes, train

from .small import small


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("pictures"), train=2, val=1, size=(40, 40))


@pytest.mark.parametrize("name", recipes())
def test_two_updates(name, pictures, tmp_path):
    recipe = load(name)
    settings = {
        "out": str(tmp_path),
        "epochs": 1,
        "model.args": {**recipe.model.args, "depth": 1},
        "model.weights": None,
        "optim.batch_size": 2,
        "optim.warmup_epochs": 0,
        "data.workers": 0,
        "run.device": "cpu",
    }
    if name != "imagenet-vim-tiny":  # one is enough: old processors emulate bfloat16
        settings["run.mixed_precision"] = "no"
    if recipe.data.name == "digits":
        settings["optim.batch_size"] = 600
    else:
        settings |= {"data.name": "folder", "data.path": str(pictures), "data.num_classes": None}
    summary = train(load(name, settings))
    assert summary["last"]["updates"] == 2
    assert summary["config"]["model.name"] == recipe.model.name
    assert tustin.load(tmp_path / "best.safetensors").num_classes == (10 if recipe.data.name == "digits" else 2)


def test_finetuning_starts_from_a_checkpoint(pictures, tmp_path):
    train(small(tmp_path / "first", epochs=1))
    unmoved = {"optim__base_lr": 0.0, "optim__warmup_lr": 0.0, "optim__min_lr": 0.0, "optim__batch_size": 4}
    data = {"data__name": "folder", "data__path": str(pictures)}
    start = str(tmp_path / "first" / "best.safetensors")
    with pytest.warns(UserWarning, match="head"):
        train(small(tmp_path / "second", epochs=1, model__weights=start, **unmoved, **data))
    first, second = tustin.load(start), tustin.load(tmp_path / "second" / "last.safetensors")
    assert (first.num_classes, second.num_classes) == (10, 2)
    assert torch.equal(first.pos_embed, second.pos_embed)


def test_weights_of_another_rule_are_refused(tmp_path):
    train(small(tmp_path / "first", epochs=1))
    weights = str(tmp_path / "first" / "best.safetensors")
    with pytest.raises(ValueError, match="bil"):
        train(small(tmp_path / "second", model__weights=weights, model__discretization="zoh"))


def test_missing_weights(tmp_path):
    with pytest.raises((OSError, ValueError), match=r"nowhere\.safetensors"):
        train(small(tmp_path, model__weights=str(tmp_path / "nowhere.safetensors")))
