"""`tustin recipes`: the settings that come with the package."""

from __future__ import annotations

import argparse
import textwrap

from ..report import terminal
from .command import Command

__all__ = ["COMMAND"]

DETAILS = """\
examples:
  tustin recipes
  tustin train digits"""


def run(args: argparse.Namespace) -> None:
    from ..train import recipes

    known = recipes()
    column = max(map(len, known)) + 2
    for name, description in known.items():
        indent = " " * column
        row = f"{name:{column}}{description}"
        print(textwrap.fill(row, terminal.columns(), subsequent_indent=indent, break_on_hyphens=False))


COMMAND = Command("recipes", "list the shipped recipes", DETAILS, run=run)
