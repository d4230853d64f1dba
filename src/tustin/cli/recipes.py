"""`tustin recipes`: the settings that come with the package."""

from __future__ import annotations

import argparse

from .command import Command

__all__ = ["COMMAND"]

DETAILS = """\
examples:
  tustin recipes
  tustin train digits"""


def run(args: argparse.Namespace) -> None:
    from ..train import recipes

    known = recipes()
    width = max(map(len, known))
    for name, description in known.items():
        print(f"{name:{width}}  {description}")


COMMAND = Command("recipes", "list the shipped recipes", DETAILS, run=run)
