"""`tustin train`: a run by a recipe, with settings on top."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from .command import Command, UsageError

if TYPE_CHECKING:
    from ..train import Config

__all__ = ["COMMAND", "RECIPE_HELP", "recipe_settings"]

DETAILS = """\
The output folder gets checkpoints, metrics.jsonl (one line per epoch), summary.json and curves.png. Repeat the command
to continue a run that was stopped or killed. torchrun and accelerate launch work as usual.

examples:
  tustin train digits
  tustin train digits --model.discretization zoh --seed 1 --epochs 5
  tustin train cifar100 --data.path data --out runs/cifar
  tustin train digits --help
  tustin train digits --print_config > mine.yaml
  torchrun --nproc_per_node 4 -m tustin train imagenet-vim-tiny --data.path imagenet"""

RECIPE_HELP = "name of a shipped recipe ('tustin recipes') or a YAML file"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", metavar="RECIPE", help=RECIPE_HELP)
    parser.add_argument(
        "settings",
        metavar="--SETTING VALUE",
        nargs=argparse.REMAINDER,
        help="settings to change; RECIPE --help lists them",
    )


def run(args: argparse.Namespace) -> None:
    config = recipe_settings(args.recipe, args.settings)
    if config is None:
        return
    from ..train import display, train

    summary = train(config, display=display.for_this_output())
    if int(os.environ.get("RANK", "0")) == 0:
        _tell(config, summary)


def _tell(config: Config, summary: dict[str, Any]) -> None:
    """The best of the run, and a picture of it."""
    from ..train import RunFolder, display
    from ..train.curves import draw_curves
    from ..train.folder import CURVES

    best, folder = ", ".join(display.metrics_text(summary["best"])), RunFolder(config.out or "")
    if records := folder.read_metrics():
        draw_curves(folder / CURVES, records, f"{config.model.name}, {config.model.discretization}, seed {config.seed}")
    place = f"update {summary['best']['updates']}" if config.updates else f"epoch {summary['best_epoch']}"
    print(f"best {place}: {best}; {summary['train_seconds']:.1f} s; {config.out}")


def recipe_settings(recipe: str, words: list[str]) -> Config | None:
    """The recipe with what the command line changes; None if it only asked to print something."""
    from ..train import settings

    try:
        return settings.parse(recipe, [word for word in words if word != "--debug"])
    except SystemExit:  # --help or --print_config has printed
        return None
    except (argparse.ArgumentError, ValueError, FileNotFoundError) as error:
        raise UsageError(str(error)) from error


COMMAND = Command("train", "train a model with a recipe, or continue a run", DETAILS, configure, run, takes_rule=True)
