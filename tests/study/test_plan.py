"""Runs of one seed are a pair: nothing but the rule differs."""

from pathlib import Path

import pytest

from tustin.data.batches import Order, training_batches
from tustin.study.plan import PAPER_DISCRETIZATIONS, Wishes, config_of, make_plan
from tustin.train import load_recipe
from tustin.train.tasks.classification import Classification

from .small import SETTINGS


def first_sight(discretization, seed):
    """The weights with which a run starts and the first images that it sees."""
    config = load_recipe("digits", SETTINGS)
    plan = make_plan("digits", config, Path("nowhere"), Wishes())
    task = Classification(config_of(plan, config, Path("nowhere"), discretization, seed))
    batch = next(training_batches(task.train_data, Order(len(task.train_data), 64, seed), 0, 1))
    return [*task.model.state_dict().values(), batch["images"], batch["labels"]]


def test_runs_of_a_seed_start_alike_and_see_the_same():
    zoh = first_sight("zoh", 3)
    for discretization in PAPER_DISCRETIZATIONS:
        assert all(bool((a == b).all()) for a, b in zip(zoh, first_sight(discretization, 3), strict=True))
    other = first_sight("zoh", 4)
    assert not (zoh[-2] == other[-2]).all()
    assert any(not (a == b).all() for a, b in zip(zoh[:-2], other[:-2], strict=True))


def test_an_unfinished_study_is_balanced():
    plan = make_plan(
        "digits",
        load_recipe("digits"),
        Path("nowhere"),
        Wishes(discretizations=["zoh", "bil"], seeds=[4, 2], control=False),
    )
    assert plan.runs() == [("zoh", 4), ("bil", 4), ("zoh", 2), ("bil", 2)]


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"discretizations": ["zoh", "bill"]}, "did you mean 'bil'"),
        ({"discretizations": ["bil"]}, "the baseline 'zoh' is not among the discretizations"),
        ({"seeds": []}, "at least one seed"),
        ({"seeds": [-1]}, "at least 0 and less than 2"),
        ({"metric": "top-1"}, "did you mean 'top1'"),
        ({"level": 5.0}, "between 0 and 1, got 5.0"),
        ({"threshold": -1.0}, "0 or more"),
        ({"threads": 0}, "at least one thread"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(wishes, words):
    with pytest.raises(ValueError, match=words):
        make_plan("digits", load_recipe("digits"), Path("nowhere"), Wishes(**wishes))
