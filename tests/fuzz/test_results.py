"""Studies, benchmarks and what is found by them, from strangers: shown, or refused with a sentence."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.bench import results as scans
from tests.bench.models import made_up, made_up_resolution
from tests.study.studies import STUDIES, write
from tustin.report.formats import json_text

from .harness import cases, check
from .mutations import VALUES, mutated_bytes, mutated_value

PAGE = """# Page

<!-- tustin study study: begin. Written by a command; edits here are lost. -->
<!-- tustin study study: end -->
"""


def changed_json(random: Random, path: Path) -> None:
    """Bytes of it, one value of it, or a few places at once."""
    content = json.loads(path.read_text(encoding="utf-8"))
    match random.randrange(4):
        case 0:
            path.write_bytes(mutated_bytes(random, path.read_bytes()))
            return
        case 1:
            content[random.choice(sorted(content))] = random.choice(VALUES)
        case _:
            content = mutated_value(random, content)
    path.write_text(json.dumps(content), encoding="utf-8")


@pytest.mark.filterwarnings("ignore")  # of libraries that draw, for numbers that nobody has measured
def test_studies(tmp_path: Path) -> None:
    kinds = ["interrupted", "one seed", "one run", "all failed", "segmentation", "lower is better"]
    folders = [write(tmp_path / kind, STUDIES[kind]) for kind in kinds]
    for random, folder, told in cases("studies"):
        study = Path(shutil.copytree(random.choice(folders), folder / "study"))
        (study / "finer").mkdir()
        for result in study.glob("results/*.json"):
            found = {"samples": None, "ways": dict.fromkeys(("as trained", "1/2: Δ·1"), 90.5)}
            (study / "finer" / result.name).write_text(json.dumps(found), encoding="utf-8")
        (folder / "page.md").write_text(PAGE, encoding="utf-8")
        files = [study / "study.json", *study.glob("results/*.json"), *study.glob("finer/*.json")]
        for file in random.sample(sorted(files), k=random.randint(1, 2)):
            changed_json(random, file)
        form = random.choice(["status", "status", "report", "finer"])
        more = {"status": [], "report": ["--into", "page.md"], "finer": ["--factors", "2"]}[form]
        check(["study", form, "study", *more, *random.choice([[], ["--json"]])], folder, told)


def benchmarks() -> dict[str, dict[str, Any]]:
    """A file of each benchmark that has made-up results."""
    options = dataclasses.replace(scans.OPTIONS, lengths=(64,), batch_sizes=(1,), discretizations=("mamba", "bil"))
    found = [scans.made_up(options), made_up(), made_up(training=True), made_up_resolution()]
    return {result.benchmark: json.loads(json_text(result.facts())) for result in found}


@pytest.mark.filterwarnings("ignore")
def test_benchmarks() -> None:
    of_name = benchmarks()
    for random, folder, told in cases("benchmarks"):
        name, file = random.choice(sorted(of_name)), folder / "found.json"
        file.write_text(json.dumps(of_name[name]), encoding="utf-8")
        changed_json(random, file)
        out = random.choice([[], ["--out", "out"], ["--json", "-"]])
        check(["bench", name, "--from", "found.json", *out], folder, told)
