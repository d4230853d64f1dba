"""Results into a page: its own block only, whole or not at all."""

import os
from pathlib import Path

import pytest

from tests.bench.results import made_up
from tustin.bench.scan_tables import outcome
from tustin.report.block import Block

ROOT = Path(__file__).parents[2]
SCAN = Block("scan")


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(f"# Title\n\nbefore\n\n{SCAN.begin}\nstale\n{SCAN.end}\n\nafter\n", encoding="utf-8")
    return path


def test_markdown_replaces_its_block_only_and_twice_is_once(page):
    block = outcome(made_up()).as_markdown(None, 3)
    SCAN.replace(page, block)
    once = page.read_text(encoding="utf-8")
    assert once.startswith(f"# Title\n\nbefore\n\n{SCAN.begin}\n\nMeasured by `tustin bench scan`. AMD EPYC")
    assert once.endswith(f"\n\n{SCAN.end}\n\nafter\n")
    assert "stale" not in once
    assert "| forward, mambapy : mamba | ≥ 80 | 100 | – | yes |" in once
    SCAN.replace(page, block)
    assert page.read_text(encoding="utf-8") == once
    assert [path.name for path in page.parent.iterdir()] == ["page.md"]


def test_a_failed_write_leaves_the_page_and_nothing_else(page, monkeypatch):
    before = page.read_bytes()

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        SCAN.replace(page, "new")
    assert page.read_bytes() == before
    assert [path.name for path in page.parent.iterdir()] == ["page.md"]


def test_writing_keeps_permissions_and_links(page, tmp_path):
    page.chmod(0o640)
    link = tmp_path / "link.md"
    link.symlink_to(page)
    SCAN.replace(link, "new")
    assert link.is_symlink()
    assert "new" in page.read_text(encoding="utf-8")
    assert page.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("text", ["nothing", SCAN.begin, SCAN.end + SCAN.begin, 2 * (SCAN.begin + SCAN.end)])
def test_a_page_needs_its_two_marks(text):
    with pytest.raises(ValueError, match=r"page\.md must have one line"):
        SCAN.split(text, "page.md")


@pytest.mark.parametrize("benchmark", ["scan", "inference", "train", "resolution"])
def test_the_documentation_has_the_marks(benchmark):
    page = ROOT / "docs" / "performance.md"
    Block(benchmark).split(page.read_text(encoding="utf-8"), str(page))
