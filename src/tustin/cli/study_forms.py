"""Further forms of `tustin study`: the plan before any run, and the trained models on finer images."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..support.files import shortened
from .arguments import at_least_one, listed
from .command import UsageError
from .output import print_json, print_rich

if TYPE_CHECKING:
    from ..study import Plan
    from ..train import Config

__all__ = ["finer", "folder_of", "parser_like", "plan"]


def parser_like(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """One that tells of mistakes in the same way."""
    return type(parser)(prog=parser.prog, add_help=False, allow_abbrev=False)


def folder_of(args: argparse.Namespace, add: Callable[[argparse.ArgumentParser], Any] | None = None) -> Path | None:
    """DIR of 'tustin study status DIR', and further options; None if it only asked for help."""
    parser = parser_like(args.parser)
    parser.add_argument("folder", metavar="DIR", type=Path)
    for flag in ("--json", "--debug"):
        parser.add_argument(flag, action="store_true")
    if add:
        add(parser)
    if "--help" in args.words or "-h" in args.words:
        args.parser.print_help()
        return None
    folder: Path = parser.parse_args(args.words, args).folder
    return folder


# --- tustin study plan ------------------------------------------------------------------------------------------------


def plan(
    args: argparse.Namespace,
    add_options: Callable[[argparse.ArgumentParser], None],
    config_of: Callable[[str, list[str]], Config | None],
    plan_of: Callable[[argparse.Namespace, Config, Path], Plan],
) -> None:
    """What a study could show, and how long it would take."""
    if not args.words:
        raise UsageError("'tustin study plan' needs the name or the path of a recipe")
    if "--help" in args.words or "-h" in args.words:
        args.parser.print_help()
        return
    args.recipe, *args.words = args.words
    parser = parser_like(args.parser)
    add_options(parser)
    parser.add_argument("--std", metavar="S", type=_spread)
    parser.add_argument("--debug", action="store_true")
    _, settings = parser.parse_known_args(args.words, args)
    config = config_of(args.recipe, settings)
    if config is None:
        return
    from ..study import display, forecast
    from ..study.local_engine import default_jobs

    folder: Path = args.out or Path("runs") / f"study-{Path(args.recipe).stem}"
    planned = plan_of(args, config, folder)
    shown = display.for_this_output()
    times = {}
    for method in [planned.baseline, *([planned.control] if planned.control else [])]:
        shown.line(f"timing a few updates of {method}")
        times[method] = forecast.time_run(planned, config, folder.absolute(), method)
    jobs = args.jobs or default_jobs(planned.config["run.device"], planned.threads)
    found = forecast.forecast(planned, args.std, times, jobs)
    if args.json:
        print_json(forecast.facts(found, times))
    else:
        print("\n".join(forecast.lines(planned, found, args.std is not None, times)))


def _spread(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {shortened(text)}")
    return value


# --- tustin study finer -----------------------------------------------------------------------------------------------


def finer(args: argparse.Namespace) -> None:
    """The trained models with their patches closer together."""
    args.samples, args.factors, args.data_path, args.into = None, [2, 4], None, None

    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--samples", metavar="N", type=at_least_one)
        parser.add_argument("--factors", metavar="A,B", type=listed(at_least_one))
        parser.add_argument("--data.path", dest="data_path", metavar="FOLDER")
        parser.add_argument("--into", metavar="PAGE", type=Path)

    folder = folder_of(args, add)
    if folder is None:
        return
    from ..report.formats import as_markdown, as_rich
    from ..study import display, read_study, report
    from ..study import finer as study_finer
    from ..study.plan import config_in

    study = read_study(folder)
    chosen = study_finer.ways(args.factors)
    config = config_in(study.plan, folder)
    if args.data_path:
        config.data.path = args.data_path
    found = study_finer.evaluate(study, folder, config, chosen, args.samples, display.for_this_output().line)
    if not found:
        raise FileNotFoundError(f"no run in {str(folder)!r} has kept its best model: runs/METHOD-SEED/best.safetensors")
    table = study_finer.finer_table(study, found, chosen, args.samples)
    if args.into:
        report.write_into(args.into, folder, as_markdown(table, level=0), study_finer.FOLDER)
    if args.json:
        print_json(study_finer.facts(found, chosen))
    else:
        print_rich(*as_rich(table))
