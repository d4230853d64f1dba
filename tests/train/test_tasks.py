"""The registry of tasks: every task has all its parts, wherever they are."""

import dataclasses
from typing import get_args

import pytest

from tustin import predict
from tustin.cli import main
from tustin.models.checkpoint.header import MODELS
from tustin.train import METRICS, TASKS, Config
from tustin.train.config import kinds
from tustin.train.tasks import DATA_SETS

OF_TRAINING = {"train_loss", "samples_per_second", "train_seconds"}


def test_all_packages_know_the_same_tasks():
    assert list(TASKS) == list(MODELS) == list(predict.PREDICTORS) == list(get_args(kinds()["task"]))


def test_all_data_belong_to_a_task():
    names = [name for kind in TASKS.values() for name in kind.data]
    assert list(get_args(kinds()["data.name"])) == names == list(DATA_SETS)
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("kind", TASKS.values(), ids=list(TASKS))
def test_a_task_has_all_its_parts(kind):
    assert MODELS[kind.name].task == kind.name
    assert {kind.default_data, kind.data_at_path or kind.default_data} <= set(kind.data)
    assert set(kind.task.metrics) <= set(METRICS)
    assert kind.primary is METRICS[kind.task.metrics[0]]
    for part in ("predict", "facts", "render"):
        assert callable(getattr(predict.predictor(kind.name), part))
    if kind.settings:
        assert isinstance(getattr(Config(), kind.name), kind.settings)


def test_settings_of_every_kind_of_data_exist():
    for data in DATA_SETS.values():
        assert {f"data.{name}" for name in data.settings} | {f"augment.{name}" for name in data.augment} <= set(kinds())
        assert ("path" in data.settings) == bool(data.at_path)


def test_every_metric_is_of_a_task_or_of_training():
    assert {name for kind in TASKS.values() for name in kind.task.metrics} | OF_TRAINING == set(METRICS)


def test_groups_of_settings_are_those_of_tasks_or_of_all():
    config = Config()
    groups = {one.name for one in dataclasses.fields(Config) if dataclasses.is_dataclass(getattr(config, one.name))}
    of_tasks = {kind.name for kind in TASKS.values() if kind.settings}
    assert groups == {"model", "data", "augment", "optim", "run"} | of_tasks


@pytest.mark.parametrize("data", DATA_SETS)
def test_the_commands_take_every_kind_of_data(data, tmp_path, capsys):
    assert main(["eval", str(tmp_path / "none.safetensors"), "--data.name", data]) == 1
    assert "No such file" in capsys.readouterr().err


@pytest.mark.parametrize("task", TASKS)
def test_the_commands_take_every_task(task, tmp_path, capsys):
    assert main(["predict", "a.png", "--checkpoint", str(tmp_path / "none.safetensors"), "--task", task]) == 1
    assert "No such file" in capsys.readouterr().err


@pytest.mark.parametrize("kind", TASKS.values(), ids=list(TASKS))
def test_data_of_another_task_are_refused(kind):
    config = Config()
    for name in set(DATA_SETS) - set(kind.data):
        config.data.name = name
        with pytest.raises(ValueError, match=rf"^{kind.name} needs data\.name .*{list(kind.data)[-1]}, got '{name}'$"):
            kind.open_data(config.data, training=True)
