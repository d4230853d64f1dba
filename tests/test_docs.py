"""The documentation is executed: its code runs, its printed output is real, its tables and links are true."""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import re
import tomllib
import warnings
from collections.abc import Iterator
from itertools import pairwise, takewhile
from math import isinf
from pathlib import Path
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

import tustin
from tests.compat.stand_in import imports_restored
from tustin import DISCRETIZATIONS, Discretization
from tustin.discretize import phi

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
NOTEBOOKS = sorted(ROOT.glob("docs/notebooks/*.ipynb"))
IDS = [str(page.relative_to(ROOT)) for page in PAGES]
_MARKDOWN = MarkdownIt("commonmark").enable("table")


@pytest.mark.usefixtures("clean_registry")  # a page may register rules of its own,
@pytest.mark.filterwarnings("ignore:selective_scan runs on the slow")  # and is then told that they are not fused
@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_code_runs_and_prints_what_the_page_says(page: Path) -> None:
    """The Python blocks of a page share a namespace and run in order; a text block right after one is its output."""
    with imports_restored():  # a page may install a stand-in
        _run(page)


@pytest.mark.usefixtures("clean_registry")
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=[path.name for path in NOTEBOOKS])
def test_notebooks_run_from_top_to_bottom(notebook: Path) -> None:
    """Their cells are plain Python, and what is stored of a run shows no path of a machine and no error."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    codes = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    stored = [output for cell in cells for output in cell.get("outputs", [])]
    assert stored
    assert all(output["output_type"] == "stream" and output["name"] == "stdout" for output in stored)
    assert not re.search(r"/(tmp|home|root|work|Users)\b", "".join(codes) + json.dumps(stored))
    namespace: dict[str, object] = {"__name__": notebook.stem}
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        for number, code in enumerate(codes):
            exec(compile(code, f"{notebook.name}, code cell {number}", "exec"), namespace)


def _run(page: Path) -> None:
    fences = [token for token in _tokens(page) if token.type == "fence"]
    namespace: dict[str, object] = {"__name__": page.stem}
    for n, block in enumerate(fences):
        if block.info != "python":
            continue
        assert block.map is not None
        line = block.map[0] + 1
        code = compile("\n" * line + block.content, str(page), "exec")  # so that a traceback shows the page's own lines
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        following = fences[n + 1] if n + 1 < len(fences) else None
        if following and following.info == "text":
            assert printed.getvalue().rstrip() == following.content.rstrip(), f"output of {page.name}, line {line}"
        else:
            assert not printed.getvalue(), f"{page.name}, line {line}: prints, but no text block shows what"


def test_the_readme_is_short() -> None:
    """At most 750 words, those of its tables and code included."""
    text = re.sub(r"<!--.*?-->", "", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.S)
    assert len([word for word in text.split() if re.search(r"\w", word)]) <= 750


def test_the_documentation_has_code() -> None:
    runnable = {page.name for page in PAGES for t in _tokens(page) if t.type == "fence" and t.info == "python"}
    assert {"README.md", "math.md", "paper.md", "adding-a-discretization.md"} <= runnable


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in map(unquote, _targets(page)):
        if re.match(r"[a-z]+:", target):  # https:, mailto:
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (anchor and anchor not in _anchors(file)):
            broken.append(target)
    assert not broken


def test_table_of_rules_is_the_registry() -> None:
    lines = _lines(ROOT / "docs" / "rules.md")
    start = next(n for n, line in enumerate(lines) if line.startswith("| name |"))
    shown = list(takewhile(lambda line: line.startswith("| `"), lines[start + 2 :]))
    expected = [_row(discretization) for discretization in DISCRETIZATIONS.values()]
    assert shown == expected, "the table of rules in docs/rules.md should be:\n" + "\n".join(expected)


def test_math_table_is_the_registry() -> None:
    shown = [line for line in _lines(ROOT / "docs" / "math.md") if line.startswith("| `")][: len(DISCRETIZATIONS)]
    expected = [f"| `{m.name}` | {m.alpha} | {', '.join(m.betas)} | {m.source} |" for m in DISCRETIZATIONS.values()]
    assert shown == expected, "the first table of docs/math.md should be:\n" + "\n".join(expected)


def test_math_and_phi_switch_forms_at_the_same_point() -> None:
    switch = re.findall(r"\|z\| [>≤] [\d.]+:", str(inspect.getdoc(inspect.getmodule(phi))))
    assert len(switch) == 2
    for condition in switch:
        assert condition in (ROOT / "docs" / "math.md").read_text(encoding="utf-8")


def test_the_site_goes_from_installing_to_contributing() -> None:
    settings = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))
    titles = [title for entry in settings["project"]["nav"] for title in entry]
    first = ["Home", "Install", "Quick start", "Existing models", "Rules", "Training", "Studies", "Results", "Speed"]
    assert titles == [*first, "GPUs", "Mathematics", "Paper", "Contributing", "Reference"]


def test_one_version_everywhere() -> None:
    assert f"version: {tustin.__version__}" in _lines(ROOT / "CITATION.cff")
    assert any(line.startswith(f"## [{tustin.__version__}]") for line in _lines(ROOT / "CHANGELOG.md"))


def _row(discretization: Discretization) -> str:
    low, high = discretization.stable
    cells = [
        f"`{discretization.name}`",
        discretization.alpha,
        ", ".join(discretization.betas),
        str(discretization.taps),
        str(discretization.order),
        "exact" if isinf(discretization.held_order) else str(discretization.held_order),
        f"{'(−∞' if isinf(low) else f'[{low:.4g}'}, {high:g}]".replace("-", "−"),
        "yes" if discretization.exact_equilibrium else "no",
        discretization.source,
    ]
    return f"| {' | '.join(cells)} |"


def _lines(page: Path) -> list[str]:
    return page.read_text(encoding="utf-8").splitlines()


def _tokens(page: Path) -> list[Token]:
    return _MARKDOWN.parse(page.read_text(encoding="utf-8"))


def _targets(page: Path) -> Iterator[str]:
    """Where the links and images of a page point, written as Markdown or as HTML."""
    for token in _tokens(page):
        for part in [token, *(token.children or [])]:
            if part.type in ("link_open", "image"):
                yield str(part.attrs["href" if part.type == "link_open" else "src"])
            elif part.type in ("html_block", "html_inline"):
                yield from re.findall(r'(?:src|href)="([^"]+)"', part.content)


def _anchors(page: Path) -> set[str]:
    """What GitHub calls the headings of a page."""
    tokens = _tokens(page)
    titles = [after.content for token, after in pairwise(tokens) if token.type == "heading_open"]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
