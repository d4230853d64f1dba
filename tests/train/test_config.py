"""Settings: recipes by name and path, names that do not exist, values of the wrong kind."""

import argparse
from pathlib import Path

import pytest

from tustin.train import load, recipes, train
from tustin.train.config import Config, keys, parse


def test_settings_go_on_top_of_the_recipe():
    config = load("digits", {"model.discretization": "zoh", "model.args.depth": 2, "seed": 3})
    assert (config.model.discretization, config.model.args["depth"], config.seed) == ("zoh", 2, 3)
    assert config.out == "runs/digits-zoh-3"
    assert load("digits").model.args.get("depth") != 2


def test_command_line_and_python_agree():
    words = ["--model.discretization", "zoh", "--optim.base_lr=0.5", "--optim.clip", "null", "--model.args.depth", "2"]
    settings = {"model.discretization": "zoh", "optim.base_lr": 0.5, "optim.clip": None, "model.args.depth": 2}
    assert parse("digits", words) == load("digits", settings)


def test_recipe_from_a_file(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("epochs: 7\noptim: {batch_size: 32}\n")
    config = load(file)
    assert (config.epochs, config.optim.batch_size, config.out) == (7, 32, "runs/mine-bil-0")
    assert config.optim.lr == config.optim.base_lr * 32 / 512


def test_every_setting_has_a_help(capsys):
    with pytest.raises(SystemExit):
        parse("digits", ["--help"])
    out = " ".join(capsys.readouterr().out.split())
    for key in keys():
        assert f"--{key} " in out
        after = out.rpartition(f"--{key} ")[2]
        assert after.split("(type:")[0].strip().split(" ", 1)[1:], f"{key} has no docstring"


def test_print_config_can_be_loaded(capsys, tmp_path):
    with pytest.raises(SystemExit):
        parse("digits", ["--epochs", "3", "--print_config"])
    (tmp_path / "digits.yaml").write_text(capsys.readouterr().out)
    assert load(tmp_path / "digits.yaml") == load("digits", {"epochs": 3})


@pytest.mark.parametrize(
    ("key", "nearest"), [("epoch", "epochs"), ("optim.batchsize", "optim.batch_size"), ("modle.name", "model.name")]
)
def test_unknown_setting_suggests_the_nearest(tmp_path, key, nearest):
    message = f"unknown setting '{key}' .did you mean '{nearest}'"
    with pytest.raises(ValueError, match=message):
        load("digits", {key: 1})
    with pytest.raises(ValueError, match=message):
        parse("digits", [f"--{key}", "1"])
    group, _, name = key.rpartition(".")
    (tmp_path / "bad.yaml").write_text(f"{group}:\n  {name}: 1\n" if group else f"{name}: 1\n")
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "bad.yaml")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"optim.batch_size": -1}, "optim.batch_size must be at least 1"),
    ],
)
def test_senseless_values(settings, message):
    with pytest.raises(ValueError, match=message):
        load("digits", settings)


def test_values_of_the_wrong_kind():
    with pytest.raises((argparse.ArgumentError, TypeError, ValueError), match=r"optim\.batch_size"):
        parse("digits", ["--optim.batch_size", "many"])


def test_unknown_recipe_and_missing_file(tmp_path):
    with pytest.raises(ValueError, match=r"unknown recipe 'digts' .did you mean 'digits'"):
        load("digts")
    with pytest.raises(FileNotFoundError, match=r"no recipe file .*mine\.yaml"):
        load(tmp_path / "mine.yaml")
    (tmp_path / "list.yaml").write_text("- 1\n")
    with pytest.raises(ValueError, match="must hold settings"):
        load(tmp_path / "list.yaml")
    (tmp_path / "broken.yaml").write_text("a: [1\n")
    with pytest.raises(ValueError, match="is not a YAML file"):
        load(tmp_path / "broken.yaml")


def test_output_folder_is_needed():
    with pytest.raises(ValueError, match="out is missing"):
        train(Config())


def test_every_recipe_loads():
    for name in recipes():
        assert isinstance(load(name), Config)


def test_every_recipe_is_documented():
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
    assert [name for name in recipes() if f"`{name}`" not in page] == []
