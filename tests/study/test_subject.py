"""The head of a report: which data, which model, how large, how long; and everything counted as the plan counts it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tustin.study import Study
from tustin.study.display import result_text
from tustin.study.plots import gains_plot, learning_curves
from tustin.study.stats import analyse
from tustin.study.subject import about, data_name
from tustin.study.tables import results_table, runs_table
from tustin.study.wording import headline, title

from .studies import SIZES, done, plan, study, with_gains

CIFAR = {
    "updates": 132,
    "data.name": "cifar100",
    "data.path": "/data",
    "model.name": "vim_nano_patch4_32",
    "model.args": {"depth": 4},
    "optim.batch_size": 128,
}


def by_updates(**changes: Any) -> Study:
    return study(plan(("zoh", "bil"), 7, recipe="c100.yaml", config=CIFAR, **changes))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"data.name": "cifar100", "data.path": "/data"}, "CIFAR-100"),
        ({"data.name": "folder", "data.path": "/data/pets/"}, "pets"),
        ({"data.name": "coco", "data.path": "/"}, "mine.yaml"),
        ({}, "mine.yaml"),
    ],
)
def test_data_are_called_by_their_name(config: dict[str, Any], expected: str) -> None:
    assert data_name(plan(recipe="mine.yaml", config=config)) == expected


def test_the_head_names_data_model_size_and_length() -> None:
    analysis = analyse(by_updates(settings={"updates": 132}))
    assert title(analysis) == "Two discretizations on CIFAR-100"
    assert "were compared on CIFAR-100" in headline(analysis)[0]
    assert about(analysis) == {
        "data": "CIFAR-100, 1,437 training and 360 held-out images, 10 classes",
        "model": "vim_nano_patch4_32 with depth 4, 45,678 parameters, images of 32 px",
        "training": "132 updates (12 epochs) with batches of 128",
        "recipe": "c100.yaml, with changed settings: updates",
    }


def test_the_head_says_what_is_known_before_a_run_is_done() -> None:
    of = study(plan(config={"epochs": 3, "model.name": "vim_tiny_patch16_224"}, settings={}), lambda *run: None)
    told = about(analyse(of))
    assert told == {
        "data": "digits",
        "model": "vim_tiny_patch16_224, images of 224 px",
        "training": "3 epochs",
        "recipe": "digits",
    }
    assert "updates" in SIZES


def test_a_study_by_updates_is_told_in_updates() -> None:
    analysis = analyse(by_updates())
    results, runs = results_table(analysis), runs_table(analysis)
    assert results.header[-1] == "best update"
    assert [row[-1] for row in results.rows] == ["121 ± 0"] * 2
    assert "of the best update" in results.note
    assert dict(zip(runs.header, runs.rows[0], strict=True))["best update"] == "121"
    assert "at update 121" in result_text(done("bil", 0), analysis.plan)
    assert "at epoch 11" in result_text(done("bil", 0), plan())


def test_curves_are_drawn_over_what_is_counted() -> None:
    curves = learning_curves(analyse(by_updates()))
    assert curves.layout.xaxis.title.text == "updates"
    assert list(curves.data[-1].x)[-1] == 132
    curves = learning_curves(analyse(study()))
    assert curves.layout.xaxis.title.text == "epoch"
    assert list(curves.data[-1].x)[-1] == 12


def test_results_of_before_updates_were_recorded_still_count() -> None:
    old = study(by_updates().plan, lambda m, s: replace(done(m, s), best_update=None, cpu_seconds=None, sizes={}))
    assert [row[-1] for row in results_table(analyse(old)).rows] == ["–", "–"]


# --- the axis of the gains --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gains", "line"),
    [
        ([0.5, 0.6, 0.65, 0.55, 0.6, 0.5], True),  # just below the threshold
        ([1.5, -0.6, 0.65, 0.55, 0.6, 0.5], True),  # around it
        ([0.01, 0.02, -0.01, 0.02, 0.03, 0.01], False),
        ([0.0] * 6, True),
    ],
)
def test_the_axis_fits_the_dots_and_the_threshold_is_marked_anyway(gains: list[float], line: bool) -> None:
    figure = gains_plot(analyse(with_gains(gains)))
    low, high = figure.layout.yaxis.range
    assert low < min([*gains, 0]) <= max([*gains, 0]) < high
    assert (low < 0.7 < high) == line
    [mark] = [note for note in figure.layout.annotations if "threshold 0.7" in note.text]
    assert ("above this axis" in mark.text) == (not line)
    if not line:
        assert (mark.yref, mark.y) == ("paper", 1)
        assert high - low < 2 * (max(gains) - min(gains)), "the dots use the height"
