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

from tustin.cli import main
from tustin.report.formats import as_latex, as_markdown, escape_latex
from tustin.study import Study
from tustin.study.picture import draw_study
from tustin.study.report import print_tables, write_report
from tustin.study.stats import analyse
from tustin.study.tables import (
    results_table,
    significance_table,
)

from .studies import ENVIRONMENT, STUDIES, done, failed, plan, study, write

FILES = {"report.html", "report.md", "report.json", "report.tex", "runs.csv", "discretizations.csv"}
HOSTILE = '<img src=x onerror=alert(1)> & "quoted" | `code` $x_1$ 100% \\end{table} </script>'


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


def test_every_study_can_be_drawn_with_the_same_bytes(any_study: Study, tmp_path: Path) -> None:
    for name in ("one.png", "two.png"):
        draw_study(tmp_path / name, analyse(any_study))
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()


def test_a_picture_is_drawn_beside_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "study", STUDIES["interrupted"])
    assert main(["study", "report", str(folder), "--plot", str(tmp_path / "study.svg")]) == 0
    text = (tmp_path / "study.svg").read_text(encoding="utf-8")
    assert text.count("<path") > 28, "a mark for each run at least"
    capsys.readouterr()
    assert main(["study", "report", str(folder), "--plot", str(tmp_path / "study.docx")]) == 1
    assert "must end in .png, .svg, .pdf" in capsys.readouterr().err
    assert not (tmp_path / "study.docx").exists()


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
    assert bil["verdict"] == "better, above threshold"


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
    assert facts["runs"][0]["metrics"] == {"top1": 95.0, "loss": "nan"}
    assert facts["limits"]


def test_latex_is_a_table_with_every_special_letter_escaped(tmp_path: Path) -> None:
    table = significance_table(analyse(STUDIES["complete"]))
    text = as_latex(replace(table, title=HOSTILE))
    assert text.count(r"\toprule") == text.count(r"\midrule") == text.count(r"\bottomrule") == 1
    assert text.count(r"\end{table}") == 1, "the other one is text"
    rows = [line for line in text.splitlines() if line.strip().endswith(r"\\")]
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(table.header) - 1}
    assert text.isascii()
    assert r"\caption{Is it better than zoh? Gain: mean gain in" in as_latex(table)
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
