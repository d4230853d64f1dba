"""How long a run is, when it is recorded, and how the learning rate falls, in epochs and in updates."""

import json

import pytest

from tustin.support.signals import Interrupted
from tustin.train import load_recipe, train
from tustin.train.course import Course

from .small import small, weights
from .test_resume import Signal


def records(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_epochs_and_updates():
    in_epochs = Course.of(load_recipe("digits", {"epochs": 3, "optim.warmup_epochs": 2}), batches=10)
    assert in_epochs == Course(updates=30, epoch=10, record_every=10, evaluate_every=10, warmup=20)
    settings = {"updates": 25, "optim.warmup_updates": 4, "run.eval_updates": 7}
    assert Course.of(load_recipe("digits", settings), batches=10) == Course(
        updates=25, epoch=10, record_every=7, evaluate_every=7, warmup=4
    )


def test_what_is_left_at_the_end_gets_a_record_of_its_own():
    course = Course(updates=25, epoch=10, record_every=10, evaluate_every=10, warmup=0)
    assert [course.records_due(step) for step in (0, 9, 10, 19, 20, 24, 25)] == [0, 0, 1, 1, 2, 2, 3]
    assert [Course(20, 10, 10, 10, 0).records_due(step) for step in (10, 19, 20)] == [1, 1, 2]


@pytest.mark.parametrize(
    ("settings", "evaluated"),
    [
        ({"updates": 8}, [1, 2, 3, 4, 5, 6, 7, 8]),
        ({"updates": 25}, [3, 6, 9, 12, 15, 18, 21, 24, 25]),  # ten points make a curve
        ({"updates": 250}, list(range(10, 251, 10))),  # an epoch is often enough
        ({"updates": 25, "run.eval_updates": 20}, [20, 25]),
        ({"updates": 25, "run.eval_every": 2}, [20, 25]),
        ({"epochs": 3, "run.eval_every": 2}, [20, 30]),
        ({"epochs": 2}, [10, 20]),
    ],
)
def test_evaluations(settings, evaluated):
    course = Course.of(load_recipe("digits", settings), batches=10)
    due = [s for s in range(1, course.updates + 1) if course.records_due(s) > course.records_due(s - 1)]
    assert [step for step in due if course.evaluates(step)] == evaluated


def test_places_are_named():
    epochs = Course(updates=30, epoch=10, record_every=10, evaluate_every=10, warmup=0)
    assert (epochs.place(10), epochs.place(11)) == ("epoch 1/3", "epoch 2/3, update 11/30")
    updates = Course(updates=25, epoch=10, record_every=10, evaluate_every=10, warmup=0)
    assert updates.place(11) == "update 11/25"
    assert (updates.epochs_at(20), updates.epochs_at(25)) == (2, 2.5)


def test_run_of_updates(tmp_path):
    summary = train(small(tmp_path, updates=7, run__eval_updates=3))
    told = records(tmp_path)
    assert [record["updates"] for record in told] == [3, 6, 7]
    assert [record["epoch"] for record in told] == [0.6, 1.2, 1.4]
    assert all("top1" in record for record in told)
    assert summary["last"]["updates"] == 7
    assert summary["best"]["top1"] == max(record["top1"] for record in told)


@pytest.mark.parametrize("at", [3, 5])  # where a record is due, and in between
def test_run_of_updates_continues_with_the_same_bits(tmp_path, at):
    settings = {"updates": 7, "run__eval_updates": 3, "optim__schedule": "linear", "optim__warmup_updates": 2}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(small(whole, **settings))
    with pytest.raises(Interrupted):
        train(small(parts, **settings), display=Signal(15, at))
    train(small(parts, **settings))
    assert weights(parts) == weights(whole)
    assert [r["train_loss"] for r in records(parts)] == [r["train_loss"] for r in records(whole)]


def test_linear_schedule_after_a_warm_up_in_updates(tmp_path):
    rate = {"optim__base_lr": 0.2, "optim__warmup_lr": 0.0, "optim__min_lr": 0.0, "optim__warmup_updates": 4}
    train(small(tmp_path, updates=10, run__eval_updates=1, optim__schedule="linear", **rate))
    told = [record["lr"] for record in records(tmp_path)]
    assert told[:4] == pytest.approx([0.1 * step / 4 for step in range(4)])
    assert told[4:] == pytest.approx([0.1 * (1 - step / 10) for step in range(4, 10)])


@pytest.mark.parametrize("name", ["updates", "run.eval_updates"])
def test_none_is_not_a_number_of_updates(name):
    with pytest.raises(ValueError, match=f"{name} must be a whole number from 1 to .*, got 0"):
        load_recipe("digits", {name: 0})
