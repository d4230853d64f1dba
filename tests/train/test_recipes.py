"""Every shipped recipe trains: two updates on images of the right size, with one block and a small batch."""

import inspect

import pytest
import torch

import tustin
from tests.data.masked_shapes import write_masked_shapes
from tests.data.pictures import write_images
from tustin import selective_scan
from tustin.models import Mixer, VisionMamba
from tustin.train import load_recipe, recipes, train
from tustin.train.config import ModelConfig
from tustin.train.recipe import find, read

from .small import small


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("pictures"), train=2, val=1, size=(40, 40))


@pytest.mark.parametrize("name", [name for name in recipes() if load_recipe(name).task == "segmentation"])
def test_two_updates_of_segmentation(name, tmp_path):
    shapes = write_masked_shapes(tmp_path / "shapes", train=2, val=1, size=(80, 64))
    recipe = load_recipe(name)
    small = {"model.img_size": 64, "model.args.depth": 1, "segmentation.channels": 16, "segmentation.short_side": 64}
    run = {"optim.batch_size": 2, "data.workers": 0, "run.device": "cpu", "run.mixed_precision": "no"}
    config = load_recipe(name, {"out": str(tmp_path / "out"), "data.path": str(shapes), "updates": 2, **small, **run})
    summary = train(config)
    assert summary["last"]["updates"] == 2
    assert summary["best"]["miou"] >= 0
    assert summary["config"]["model.name"] == recipe.model.name
    assert tustin.load(tmp_path / "out" / "best.safetensors").num_classes == (recipe.data.num_classes or 3)


@pytest.mark.parametrize("name", recipes())
def test_a_recipe_names_its_discretization(name):
    """A default is for models; a recipe's results must not change with it."""
    given = read(find(name))["model"]["discretization"]
    assert given == ("mamba" if name == "finetune" else "bil")


def test_one_default_for_the_scan_and_for_models():
    defaults = {
        inspect.signature(one).parameters["discretization"].default for one in (selective_scan, VisionMamba, Mixer)
    }
    assert defaults == {"mamba"} == {ModelConfig().discretization}


def test_segmentation_as_in_the_paper():
    config = load_recipe("ade20k-vim-tiny")
    assert (config.updates, config.optim.warmup_updates, config.optim.batch_size) == (160_000, 1500, 16)
    assert config.optim.lr == pytest.approx(6e-5)
    assert (config.optim.name, config.optim.weight_decay, config.optim.schedule) == ("adamw", 0.01, "linear")
    segmentation = config.segmentation
    assert (segmentation.long_side, segmentation.short_side, config.model.img_size) == (2048, 512, 512)
    assert (segmentation.min_scale, segmentation.max_scale, segmentation.category_ratio) == (0.5, 2.0, 0.75)
    assert (segmentation.auxiliary_weight, segmentation.window_stride) == (0.4, 341)


@pytest.mark.parametrize("name", [name for name in recipes() if load_recipe(name).task == "classification"])
def test_two_updates(name, pictures, tmp_path):
    recipe = load_recipe(name)
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
    summary = train(load_recipe(name, settings))
    assert summary["last"]["updates"] == 2
    assert summary["config"]["model.name"] == recipe.model.name
    assert tustin.load(tmp_path / "best.safetensors").num_classes == (10 if recipe.data.name == "digits" else 2)


def test_finetuning_starts_from_a_checkpoint(pictures, tmp_path):
    train(small(tmp_path / "first", epochs=1))
    unmoved = {"optim__base_lr": 0.0, "optim__warmup_lr": 0.0, "optim__min_lr": 0.0, "optim__batch_size": 4}
    data = {"data__name": "folder", "data__path": str(pictures), "augment__shift": 0}
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
