"""The models of a study with their patches closer together, and its tables in a page."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.cli.test_cli import assert_one_error_line
from tustin.cli import main
from tustin.report.formats import as_markdown
from tustin.study import read_study
from tustin.study.finer import finer_table, ways
from tustin.study.report import SHORT, in_short, published

ROOT = Path(__file__).parents[2]


def test_the_ways() -> None:
    names = [way.name for way in ways([2])]
    assert names == [
        "as trained",
        "1/2: Δ·1",
        "1/2: Δ·0.5",
        "1/2: Δ·0.25",
        "1/2: Δ·0.5, taps 2 apart",
        "1/2: Δ·0.25, taps 2 apart",
    ]


def test_finer_images_of_a_study(tmp_path, undisturbed, capsys) -> None:
    folder = tmp_path / "study"
    shutil.copytree(undisturbed[0], folder)
    assert main(["study", "finer", str(folder), "--factors", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {(model["discretization"], model["seed"]) for model in told["models"]} == {
        (name, seed) for name in ("zoh", "bil") for seed in (0, 1)
    }
    for model in told["models"]:
        [result] = [
            r
            for r in read_study(folder).results
            if (r.discretization, r.seed) == (model["discretization"], model["seed"])
        ]
        assert model["values"]["as trained"] == pytest.approx(result.metrics["top1"])
        assert len(set(model["values"].values())) > 1
    shutil.rmtree(folder / "runs")
    assert main(["study", "finer", str(folder), "--factors", "2"]) == 0, "what was found stays"
    assert "as trained" in capsys.readouterr().out
    assert main(["study", "finer", str(folder), "--factors", "2", "--samples", "20"]) == 1
    assert_one_error_line(capsys, "no run in", "best.safetensors")


def test_tables_go_into_a_page(tmp_path, undisturbed, capsys) -> None:
    folder, page = tmp_path / "small", tmp_path / "page.md"
    shutil.copytree(undisturbed[0], folder)
    begin = "<!-- tustin study small: begin. Written by a command; edits here are lost. -->"
    page.write_text(f"before\n{begin}\nold\n<!-- tustin study small: end -->\nafter\n")
    assert main(["study", "report", str(folder), "--into", str(page)]) == 0
    text = page.read_text()
    assert text.startswith(f"before\n{begin}\n\n")
    assert text.endswith("<!-- tustin study small: end -->\nafter\n")
    assert published(read_study(folder)).strip() in text
    shutil.rmtree(folder / "runs")
    page.write_text(begin.replace("small", "small finer") + "\n<!-- tustin study small finer: end -->\n")
    with_files = tmp_path / "with_files" / "small"
    shutil.copytree(undisturbed[0], with_files)
    assert main(["study", "finer", str(with_files), "--factors", "2", "--samples", "20", "--into", str(page)]) == 0
    assert "of the trained models on 20 evenly spread held-out images" in page.read_text()
    page.write_text("no marks")
    capsys.readouterr()
    assert main(["study", "report", str(folder), "--into", str(page)]) == 1
    assert_one_error_line(capsys, "must have one line", "tustin study small: begin")


def test_a_page_may_hold_the_short_form(tmp_path, undisturbed) -> None:
    folder, page = tmp_path / "small", tmp_path / "page.md"
    shutil.copytree(undisturbed[0], folder)
    study = read_study(folder)
    short, whole = (
        f"<!-- tustin study {name}: begin. Written by a command; edits here are lost. -->\n"
        f"<!-- tustin study {name}: end -->\n"
        for name in ("small short", "small")
    )
    page.write_text(short)
    assert main(["study", "report", str(folder), "--into", str(page)]) == 0
    lines = page.read_text().splitlines()
    assert in_short(study).strip() in page.read_text()
    assert [line.split(" | ")[0] for line in lines if line.startswith("| ")] == [
        "| discretization",
        "| ---",
        "| zoh",
        "| bil",
    ]
    assert not any(line.startswith("#") for line in lines)
    page.write_text(f"{short}\n=====\n{whole}")
    assert main(["study", "report", str(folder), "--into", str(page)]) == 0
    first, second = page.read_text().split("=====")
    assert in_short(study).strip() in first
    assert published(study).strip() in second


def blocks() -> list[tuple[Path, str]]:
    """Every page with the tables of a study, and the name of that study."""
    found = []
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for line in page.read_text(encoding="utf-8").splitlines():
            if re.match("<!-- tustin study [^N].*: begin", line):  # NAME stands for any
                found.append((page, line.removeprefix("<!-- tustin study ").partition(":")[0]))
    return found


def finer_text(folder: Path) -> str:
    """The table of what the files say, in whichever ways and on as many images as they do."""
    files = {path.stem.rpartition("-"): json.loads(path.read_text()) for path in folder.glob("finer/*.json")}
    found = {(name, int(seed)): told["ways"] for (name, _, seed), told in sorted(files.items())}
    (samples,) = {told["samples"] for told in files.values()}
    return as_markdown(finer_table(read_study(folder), found, ways(), samples), level=0).strip()


@pytest.mark.parametrize(("page", "name"), blocks(), ids=lambda value: getattr(value, "name", value))
def test_published_tables_are_what_the_result_files_say(page: Path, name: str) -> None:
    """A page says so if the repository has nothing of a study yet."""
    text = page.read_text(encoding="utf-8")
    inside = text.split(f"<!-- tustin study {name}: begin.")[1].split(f"<!-- tustin study {name}: end -->")[0]
    name, _, part = name.partition(" ")
    folder = ROOT / "results" / name
    if part == SHORT:
        assert in_short(read_study(folder)).strip() in inside
    elif part:
        assert finer_text(folder) in inside if list(folder.glob("finer/*.json")) else "No results yet" in inside
    elif (folder / "study.json").exists():
        assert published(read_study(folder)).strip() in inside
    else:
        assert "No results yet" in inside
