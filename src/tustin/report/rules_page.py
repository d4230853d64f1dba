"""The rules as one HTML file with sliders: α, β, step and frequency response, computed in the browser."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from .. import __version__
from ..discretize.base import Discretization
from ..support.files import write_text

__all__ = ["drawable", "save"]

TEMPLATE = Path(__file__).with_suffix(".html")


def drawable(rules: Sequence[Discretization]) -> list[Discretization]:
    """Those whose formulas the page has: the built-in ones. It computes with formulas of its own, in JavaScript."""
    from ..discretize import BUILT_IN

    body = TEMPLATE.read_text(encoding="utf-8").partition("const RULES = {")[2].partition("\n};")[0]
    known = set(re.findall(r"^  (\w+):", body, re.MULTILINE))
    return [rule for rule in rules if rule in BUILT_IN and rule.name in known]


def save(path: str | Path, rules: Sequence[Discretization]) -> None:
    """Write the page of `rules` to `path`; it needs nothing but itself."""
    facts = [{"name": rule.name, "stable_from": max(rule.stable[0], -1e300)} for rule in drawable(rules)]
    page = TEMPLATE.read_text(encoding="utf-8")
    write_text(Path(path), page.replace("__VERSION__", __version__).replace("__RULES__", json.dumps(facts)))
