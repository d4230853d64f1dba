"""The reference is complete: every public name is on one of its pages, with an example that tests/test_docs.py runs."""

from __future__ import annotations

import re
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "reference").glob("*.md"))
FOLDER = ROOT / "src" / "tustin"
TOP = ["tustin", *(f"tustin.{path.parent.name}" for path in sorted(FOLDER.glob("*/__init__.py")))]
PACKAGES = [name for name in TOP if hasattr(import_module(name), "__all__")] + ["tustin.ops.scan", "tustin.train.tasks"]
"""Those that say what is public."""


def _entries() -> dict[str, str]:
    """What the pages say about each name, as `package.name`."""
    found: dict[str, str] = {}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        marks = [*re.finditer(r"^::: ([\w.]+)$", text, re.MULTILINE), None]
        for mark, after in pairwise(marks):
            assert mark is not None
            assert mark[1] not in found, f"{mark[1]} is there twice"
            found[mark[1]] = text[mark.end() : after.start() if after else len(text)]
    return found


def test_packages_are_found() -> None:
    assert {"tustin", "tustin.discretize", "tustin.models", "tustin.study", "tustin.train"} <= set(PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_there_once(package: str) -> None:
    entries = _entries()
    for name in import_module(package).__all__:
        there = getattr(import_module(package), name)
        places = [
            entry
            for entry in entries
            if (parts := entry.rpartition("."))[2] == name and getattr(import_module(parts[0]), name) is there
        ]
        assert len(places) == 1, f"{package}.{name} is on {len(places)} pages of the reference"


@pytest.mark.parametrize("entry", _entries())
def test_every_entry_is_public_and_has_an_example(entry: str) -> None:
    package, _, name = entry.rpartition(".")
    assert name in import_module(package).__all__
    blocks = re.findall(r"^```python\n(.*?)^```", _entries()[entry], re.MULTILINE | re.DOTALL)
    assert any(re.search(rf"\b{name}\b", block) for block in blocks), f"{entry} has no example that uses it"
