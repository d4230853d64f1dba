"""What the tables and sentences of a report say, of whole studies and of those that show little."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tustin.report.paper_figures import PAPER
from tustin.report.table import NOTHING
from tustin.study.stats import analyse
from tustin.study.tables import (
    failures_table,
    paper_table,
    results_table,
    runs_table,
    settings_table,
    significance_table,
)
from tustin.study.wording import headline, limits
from tustin.train import METRICS, load_recipe

from .studies import ENVIRONMENT, PAPER_DISCRETIZATIONS, STUDIES, done, failed, plan, study

# --- what the tables say ----------------------------------------------------------------------------------------------


def test_the_results_are_the_papers_table() -> None:
    table = results_table(analyse(STUDIES["complete"]))
    assert table.header == (
        "discretization",
        "top-1 accuracy (%)",
        "top-5 accuracy (%)",
        "best epoch",
    )
    values = [done("zoh", seed).metrics["top1"] for seed in range(10)]
    mean = sum(values) / 10
    std = (sum((value - mean) ** 2 for value in values) / 9) ** 0.5
    assert table.rows[0][1] == f"{mean:.2f} ± {std:.2f}"
    assert [row[0] for row in table.rows] == [*PAPER_DISCRETIZATIONS, "no_state"]


@pytest.mark.parametrize("name", ["segmentation", "detection"])
def test_other_tasks_are_told_in_their_own_metric(name: str) -> None:
    analysis = analyse(STUDIES[name])
    title = METRICS[STUDIES[name].plan.metric].title
    texts = [*results_table(analysis).header, significance_table(analysis).note, *headline(analysis)]
    assert sum(title in text for text in texts) >= 3
    assert not any("top-1" in text for text in texts)
    beside = paper_table(analysis)
    assert beside is not None
    assert any("paper" in column and title in column for column in beside.header)


def test_a_lower_loss_is_told_as_a_gain() -> None:
    table = significance_table(analyse(STUDIES["lower is better"]))
    assert table.rows[0][2] == "+0.1900"
    assert "a gain is a decrease" in table.note
    assert table.header[2] == "gain"


def test_a_loss_is_told_as_a_loss() -> None:
    analysis = analyse(STUDIES["complete"])
    foh = significance_table(analysis).rows[0]
    assert foh[:2] == ("foh", "worse")
    assert foh[2].startswith("−")
    assert foh[3].count("−") == 2, "the whole interval is below zero"
    assert "is significantly worse than zoh" in " ".join(headline(analysis))


def test_failures_come_with_their_diagnosis() -> None:
    table = failures_table(analyse(STUDIES["interrupted"]))
    assert table is not None
    assert [row[:2] for row in table.rows] == [("rk4_raw", "1"), ("rk4_raw", "4")]
    assert "the loss is nan at update 14" in table.rows[0][2]
    assert "first non-finite: layers.0.mixer, y (backward)" in table.rows[0][3]
    assert "42% of the steps outside the rule's stability interval, −2.785 to 0" in table.rows[0][3]
    assert failures_table(analyse(STUDIES["complete"])) is None


def test_a_failure_without_diagnosis_and_one_of_a_rule_without_bounds() -> None:
    unbounded = {"first_non_finite": None, "stable": ["-inf", 0.0], "healthy": False}
    layers = [{"layer": "layers.0.mixer", "direction": "forward", "z_range": None, "unstable": 1.0}]
    runs = {"zoh": None, "bil": {**unbounded, "layers": layers}, "pol": {**unbounded, "layers": []}}
    found = failures_table(analyse(study(plan(list(runs), 1), lambda m, s: replace(failed(m, s), diagnosis=runs[m]))))
    assert found is not None
    assert [row[3] == NOTHING for row in found.rows] == [True, False, True]
    assert "no z is finite" in found.rows[1][3]


def test_the_runs_are_all_listed() -> None:
    statuses = [row[2] for row in runs_table(analyse(STUDIES["interrupted"])).rows]
    assert (statuses.count("done"), statuses.count("failed"), statuses.count("missing")) == (26, 2, 2)


def test_settings_are_shown_as_they_were_given() -> None:
    values = {
        "seeds": [0, 1, 2],
        "threads": 1,
        "rate": 0.0,
        "amsgrad": True,
        "fused": False,
        "path": None,
        "a": {"b": "c"},
    }
    rows = dict(settings_table("configuration", "Configuration", values).rows)
    assert rows == {
        "seeds": "0, 1, 2",
        "threads": "1",
        "rate": "0.0",
        "amsgrad": "yes",
        "fused": "no",
        "path": NOTHING,
        "a.b": "c",
    }


# --- the paper's figures ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", PAPER)
def test_the_papers_figures_belong_to_a_recipe_and_its_metrics(recipe: str) -> None:
    load_recipe(recipe)
    for row in PAPER[recipe].rows.values():
        assert row.metrics.keys() <= METRICS.keys()
    assert tuple(PAPER[recipe].rows) == PAPER_DISCRETIZATIONS


@pytest.mark.parametrize("recipe", PAPER)
def test_the_papers_figures_are_those_of_the_documentation(recipe: str) -> None:
    lines = (Path(__file__).parents[2] / "docs" / "paper.md").read_text(encoding="utf-8").splitlines()
    for discretization, row in PAPER[recipe].rows.items():
        written = [line for line in lines if line.startswith(f"| {discretization.upper()} |")]
        numbers = [f"{value:.{1 if len(row.metrics) == 1 else 2}f}" for value in row.metrics.values()]
        expected = [row.training_time, str(row.best_epoch), *numbers] if row.training_time else numbers
        assert any(" | ".join(expected) in line for line in written)


def test_the_papers_figures_are_marked_as_its_own() -> None:
    table = paper_table(analyse(STUDIES["as in the paper"]))
    assert table is not None
    assert all(column.startswith(("discretization", "paper", "ours")) for column in table.header)
    assert "four A100 GPUs" in table.note
    assert "Nothing in them was measured here" in table.note
    assert "changed settings of the recipe: epochs" in table.note
    bil = dict(zip(table.header, table.rows[2], strict=True))
    assert bil["paper: top-1 accuracy (%)"] == "44.69"
    assert bil["paper, ten seeds: gain (points)"] == "+1.09"
    assert bil["ours: top-1 accuracy (%)"].startswith("96.")
    assert paper_table(analyse(STUDIES["complete"])) is None, "the paper has no digits"


# --- what can and what cannot be concluded ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("interrupted", "2 of 30 runs have not finished"),
        ("interrupted", "rk4_raw failed in 2 of 10 runs"),
        ("one seed", "One pair of runs cannot tell a difference from chance"),
        ("one seed", "The spread between seeds is unknown"),
        ("one discretization", "With one discretization there is no difference to test"),
        ("nothing yet", "60 of 60 runs have not finished"),
        ("nothing yet", "No seed has a result of both zoh and"),
        ("all failed", "rk4_raw failed with every seed"),
        ("no baseline", "The baseline zoh is not among the discretizations"),
        ("equal", "bil has no gain or loss with every seed"),
    ],
)
def test_what_cannot_be_concluded_is_said(name: str, sentence: str) -> None:
    assert any(sentence in limit for limit in limits(analyse(STUDIES[name])))


def test_a_complete_study_has_nothing_to_excuse() -> None:
    assert limits(analyse(STUDIES["complete"])) == []


def test_runs_of_different_machines_are_noticed() -> None:
    other = {**ENVIRONMENT, "cpu": {"model": "Another processor", "cores": 2}}
    found = limits(
        analyse(
            study(plan(control="no_state"), lambda m, s: replace(done(m, s), environment=other if s else ENVIRONMENT))
        )
    )
    assert len(found) == 1
    assert "differ in cpu.model" in found[0]


def test_a_damaged_result_is_named() -> None:
    whole = study(plan(("zoh", "bil"), 6))
    found = limits(analyse(replace(whole, damaged={Path("results/bil-3.json"): "'results/bil-3.json' is damaged"})))
    assert any("results/bil-3.json" in sentence for sentence in found)


def test_the_headline_tells_what_was_compared_and_what_came_out() -> None:
    first, second, third = headline(analyse(STUDIES["complete"]))
    assert first == (
        "Six discretizations were compared on digits by top-1 accuracy, with ten seeds each and zoh as the baseline."
    )
    assert re.match(
        r"hoh \(\+\d\.\d\d\) and bil \(\+\d\.\d\d\) are significantly better than zoh, by 0\.70 points", second
    )
    assert re.search(r"rk4 \([+−]\d\.\d\d\) is practically equal to zoh, within ±0\.70 points\.", second)
    interval = r"95% interval \+\d\.\d\d to \+\d\.\d\d"
    assert re.match(rf"The state of the scan is worth \+\d\.\d\d points \(zoh against no_state, {interval}\)\.", third)


def test_the_headline_of_an_unfinished_study_tells_how_far_it_is() -> None:
    whole = study(plan(("zoh", "bil"), 10))
    missing = [(rule, seed) for rule, seed in plan(("zoh", "bil"), 10).runs() if seed >= (5 if rule == "zoh" else 4)]
    results = [one for one in whole.results if (one.discretization, one.seed) not in missing]
    unfinished = analyse(replace(whole, results=results, missing=missing))
    assert "with four to five of ten seeds each" in headline(unfinished)[0]
    assert results_table(unfinished).note.startswith("Mean ± standard deviation over the runs.")


def test_an_empty_equality_says_why() -> None:
    analysis = analyse(STUDIES["equal, but empty"])
    assert "That is less than 2.10 points, three times the threshold" in headline(analysis)[-1]
    assert "the equality of rk4 to zoh says little" in headline(analysis)[-1]
    table = significance_table(analysis)
    assert table.rows[0][1] == "practically equal, but empty"
    assert "The state of the scan is worth +1.20 points, +1.20 to +1.20 (zoh against no_state, 10 pairs)." in table.note


def test_equality_without_a_control_is_told() -> None:
    assert any("no control" in sentence for sentence in limits(analyse(STUDIES["equal"])))


@pytest.mark.parametrize("name", ["one seed", "no baseline", "nothing yet", "all failed"])
def test_the_headline_claims_nothing_that_was_not_tested(name: str) -> None:
    text = " ".join(headline(analyse(STUDIES[name])))
    assert "Nothing can be concluded" in text
    assert "significant" not in text
