"""The report in all its forms, of complete studies and of those from which little can be concluded."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from tustin.report.paper_figures import PAPER
from tustin.study import Result, Study
from tustin.study.report import print_tables, write_report
from tustin.study.stats import analyse
from tustin.study.tables import (
    NOTHING,
    failures_table,
    paper_table,
    results_table,
    runs_table,
    settings_table,
    significance_table,
)
from tustin.study.texts import as_latex, as_markdown, escape_latex
from tustin.study.wording import headline, limits
from tustin.train import METRICS, load_recipe

from .studies import ENVIRONMENT, PAPER_DISCRETIZATIONS, done, failed, plan, study, with_gains, write

FILES = {"report.html", "report.md", "report.json", "report.tex", "runs.csv", "discretizations.csv"}
HOSTILE = '<img src=x onerror=alert(1)> & "quoted" | `code` $x_1$ 100% \\end{table} </script>'


def interrupted(discretization: str, seed: int) -> Result | None:
    """A study stopped on its way, in which one rule diverges now and then."""
    if discretization == "rk4_raw" and seed in (1, 4):
        return failed(discretization, seed)
    return None if seed == 9 and discretization != "zoh" else done(discretization, seed)


STUDIES: dict[str, Study] = {
    "complete": study(),
    "interrupted": study(plan(("zoh", "bil", "rk4_raw")), interrupted),
    "one seed": study(plan(seeds=1)),
    "one discretization": study(plan(("zoh",))),
    "one run": study(plan(("bil",), 1)),
    "nothing yet": study(run=lambda discretization, seed: None),
    "all failed": study(plan(("zoh", "rk4_raw"), 3), failed),
    "no baseline": study(plan(("bil", "pol"), 3)),
    "equal": with_gains([0.0] * 6),
    "as in the paper": study(plan(recipe="cifar100")),
    "segmentation": with_gains([1.0, 2.0, 1.5, 2.5, 3.0], metric="miou", recipe="ade20k-vim-tiny"),
    "detection": with_gains([1.0, 2.0, 1.5, 2.5, 3.0], metric="box_ap75", recipe="coco-vim-tiny"),
    "lower is better": with_gains([-0.1, -0.2, -0.15, -0.2, -0.3], metric="loss", threshold=0.05),
}


@pytest.fixture(params=STUDIES)
def any_study(request: pytest.FixtureRequest) -> Study:
    return STUDIES[request.param]


# --- all forms --------------------------------------------------------------------------------------------------------


def test_every_study_has_a_report(any_study: Study, tmp_path: Path) -> None:
    written = write_report(write(tmp_path / "study", any_study))
    assert written[0].name == "report.html"
    assert {path.name for path in written} == FILES
    assert all(path.read_text(encoding="utf-8").strip() for path in written)


def test_the_same_study_gives_the_same_bytes(tmp_path: Path) -> None:
    folder = write(tmp_path / "study", STUDIES["interrupted"])
    before = {path: path.read_bytes() for path in write_report(folder)}
    assert {path: path.read_bytes() for path in write_report(folder)} == before


def test_a_folder_without_a_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no study"):
        write_report(tmp_path)


def test_csv_has_every_run_and_every_discretization(tmp_path: Path) -> None:
    folder = write(tmp_path / "study", STUDIES["interrupted"])
    write_report(folder)
    runs = _csv(folder / "runs.csv")
    assert len(runs) == 28
    assert {"discretization", "seed", "status", "top1", "top5", "loss", "best_epoch", "train_seconds"} <= runs[0].keys()
    assert [run["status"] for run in runs].count("failed") == 2
    assert float(runs[0]["top1"]) == done("zoh", 0).metrics["top1"]
    zoh, bil, raw = _csv(folder / "discretizations.csv")
    assert (zoh["done"], bil["missing"], raw["failed"]) == ("10", "1", "2")
    assert (zoh["pairs"], bil["pairs"], raw["pairs"]) == ("", "9", "7")
    assert float(bil["p"]) == 1 / 512
    assert bil["verdict"] == "significant and above threshold"


@pytest.mark.parametrize("first", list("=+-@\t\r\n"))
def test_no_cell_is_a_formula(tmp_path: Path, first: str) -> None:
    error = f"{first}=HYPERLINK(1)"
    made_up = study(plan(["zoh", "bil"], 2), lambda m, s: replace(failed(m, s), error=error) if s else done(m, s))
    write_report(write(tmp_path / "study", made_up))
    with (tmp_path / "study" / "runs.csv").open(encoding="utf-8", newline="") as file:
        assert {row["error"] for row in csv.DictReader(file)} == {"", f"'{error.strip()}"}


def _csv(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def test_json_is_strict_and_complete(tmp_path: Path) -> None:
    odd = study(plan(("zoh", "bil"), 3), lambda m, s: replace(done(m, s), metrics={"top1": 95.0, "loss": float("nan")}))
    folder = write(tmp_path / "study", odd)
    write_report(folder)

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    facts = json.loads((folder / "report.json").read_text(encoding="utf-8"), parse_constant=refuse)
    assert facts["plan"]["discretizations"] == ["zoh", "bil"]
    assert facts["comparisons"][0]["verdict"] == "cannot be concluded"
    assert facts["runs"][0]["metrics"] == {"top1": 95.0, "loss": None}
    assert facts["limits"]


def test_latex_is_a_table_with_every_special_letter_escaped(tmp_path: Path) -> None:
    table = significance_table(analyse(STUDIES["complete"]))
    text = as_latex(replace(table, title=HOSTILE))
    assert text.count(r"\toprule") == text.count(r"\midrule") == text.count(r"\bottomrule") == 1
    assert text.count(r"\end{table}") == 1, "the other one is text"
    rows = [line for line in text.splitlines() if line.strip().endswith(r"\\")]
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(table.header) - 1}
    assert text.isascii()
    assert escape_latex(r"a_b%\x") == r"a\_b\%\textbackslash{}x"


def test_markdown_shows_what_was_measured_as_plain_text(tmp_path: Path) -> None:
    odd = study(
        plan(("zoh", "rk4_raw"), 3), lambda m, s: replace(failed(m, s), error=HOSTILE) if s == 1 else done(m, s)
    )
    folder = write(tmp_path / "study", odd)
    write_report(folder)
    tokens = MarkdownIt("commonmark").enable("table").parse((folder / "report.md").read_text(encoding="utf-8"))
    kinds = {child.type for token in tokens for child in token.children or []}
    assert kinds <= {"text", "softbreak", "text_special"}
    cells = [token.content for token in tokens if token.type == "inline"]
    assert sum("img src=x" in cell for cell in cells) == 2, "once for each run that failed"
    assert as_markdown(results_table(analyse(odd))).count("\n|") == 2 + len(odd.plan.discretizations)


def test_nothing_leaves_its_place_in_the_page(tmp_path: Path) -> None:
    odd = plan(("zoh", "bil"), 6, recipe=HOSTILE, config={HOSTILE: HOSTILE}, settings={HOSTILE: HOSTILE})
    odd = replace(odd, environment={**ENVIRONMENT, "cpu": {"model": HOSTILE}})
    folder = write(
        tmp_path / "study", study(odd, lambda m, s: replace(failed(m, s), error=HOSTILE) if s else done(m, s))
    )
    page = write_report(folder)[0].read_text(encoding="utf-8")
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    body = page[page.index("<body>") :]
    assert "<img" not in body
    assert body.count("<script>") == body.count("</script>")


def test_the_page_needs_no_network(tmp_path: Path) -> None:
    page = write_report(write(tmp_path / "study", STUDIES["complete"]))[0].read_text(encoding="utf-8")
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=", page)
    assert page.count("plotly.js v") == 1, "the code that draws is there, and once"
    assert "default-src 'none'" in page


# --- what the tables say ----------------------------------------------------------------------------------------------


def test_the_results_are_the_papers_table() -> None:
    table = results_table(analyse(STUDIES["complete"]))
    assert table.header == (
        "discretization",
        "training time (s)",
        "best epoch",
        "top-1 accuracy (%)",
        "top-5 accuracy (%)",
        "training throughput (images/s)",
    )
    values = [done("zoh", seed).metrics["top1"] for seed in range(10)]
    mean = sum(values) / 10
    std = (sum((value - mean) ** 2 for value in values) / 9) ** 0.5
    assert table.rows[0][3] == f"{mean:.2f} ± {std:.2f}"
    assert [row[0] for row in table.rows] == list(PAPER_DISCRETIZATIONS)


@pytest.mark.parametrize(("seconds", "shown", "unit"), [(30, "30.0", "s"), (600, "10.0", "min"), (172_800, "2.0", "d")])
def test_long_training_is_told_in_a_fitting_unit(seconds: float, shown: str, unit: str) -> None:
    table = results_table(analyse(study(plan(seeds=1), lambda m, s: replace(done(m, s), train_seconds=seconds))))
    assert table.header[1] == f"training time ({unit})"
    assert table.rows[0][1] == shown


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
    assert foh[:2] == ("foh", "significantly worse")
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
        ("interrupted", "2 of 30 runs have not ended"),
        ("interrupted", "rk4_raw failed in 2 of 10 runs"),
        ("one seed", "One pair of runs cannot tell a difference from chance"),
        ("one seed", "The spread between seeds is unknown"),
        ("one discretization", "With one discretization there is no difference to test"),
        ("nothing yet", "60 of 60 runs have not ended"),
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
        analyse(study(plan(seeds=10), lambda m, s: replace(done(m, s), environment=other if s else ENVIRONMENT)))
    )
    assert len(found) == 1
    assert "differ in cpu.model" in found[0]


def test_a_damaged_result_is_named() -> None:
    whole = study(plan(("zoh", "bil"), 6))
    found = limits(analyse(replace(whole, damaged={Path("results/bil-3.json"): "'results/bil-3.json' is damaged"})))
    assert any("results/bil-3.json" in sentence for sentence in found)


def test_the_headline_tells_what_was_compared_and_what_came_out() -> None:
    first, second = headline(analyse(STUDIES["complete"]))
    assert first == (
        "Six discretizations were compared on digits by top-1 accuracy, with ten seeds each and zoh as the baseline."
    )
    assert re.match(
        r"hoh \(\+\d\.\d\d\) and bil \(\+\d\.\d\d\) are significantly better than zoh, by 0\.70 points", second
    )
    assert "no difference from zoh was shown for rk4." in second


@pytest.mark.parametrize("name", ["one seed", "no baseline", "nothing yet", "all failed"])
def test_the_headline_claims_nothing_that_was_not_tested(name: str) -> None:
    text = " ".join(headline(analyse(STUDIES[name])))
    assert "nothing can be concluded" in text
    assert "significant" not in text


# --- on the terminal --------------------------------------------------------------------------------------------------


def _printed(of: Study) -> str:
    console = Console(width=120, file=io.StringIO())
    print_tables(console, analyse(of))
    return console.file.getvalue()


def test_the_terminal_shows_tables_and_verdicts(any_study: Study) -> None:
    text = _printed(any_study)
    assert "Results" in text
    analysis = analyse(any_study)
    for summary in analysis.discretizations:
        assert summary.discretization in text
    for comparison in analysis.comparisons:
        assert str(comparison.verdict) in text


def test_the_terminal_takes_names_as_they_are() -> None:
    assert "[bold]x[/bold]" in _printed(study(plan(("zoh", "[bold]x[/bold]"), 1)))


@pytest.mark.parametrize("name", ["complete", "interrupted", "segmentation", "detection"])
def test_no_word_is_cut_off_on_a_narrow_terminal(name: str) -> None:
    console = Console(width=80, file=io.StringIO())
    analysis = analyse(STUDIES[name])
    print_tables(console, analysis)
    words = set(console.file.getvalue().split())
    for table in (results_table(analysis), significance_table(analysis)):
        shown = [word for row in (table.header, *table.rows) for cell in row for word in cell.split()]
        assert set(shown) <= words
