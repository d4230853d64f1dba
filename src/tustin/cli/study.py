"""`tustin study`: plan and run a study, look at one, write its report."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sized
from pathlib import Path
from typing import TYPE_CHECKING

from ..support.extras import insist_on
from ..support.files import shortened
from ..support.names import unknown
from . import study_forms
from .arguments import at_least_one, listed
from .command import Command, UsageError
from .output import print_drawn, print_json, print_rich
from .train import RECIPE_HELP, recipe_settings

if TYPE_CHECKING:
    from ..study import Plan, Study
    from ..study.runner import Engine
    from ..train import Config

__all__ = ["COMMAND"]

MOST_SEEDS = 10_000
"""Of a study; more are a mistake."""


class SomeRunsFailed(RuntimeError):
    """The study is done and its report is written, but not all its runs are in it."""

    exit_code = 3


DETAILS = """\
Any other '--SETTING VALUE' changes the recipe, for all runs ('tustin train RECIPE --help' lists the settings). Runs
with the same seed start from the same weights and see the same images in the same order; only the rule differs. Repeat
the command to continue a study that was stopped or killed. You may add discretizations and seeds.

  plan RECIPE   estimate before any run which gain the study can detect, which difference it can call equal, and how
                long it takes on this machine; --std S is the standard deviation of the paired differences
  status DIR    show how many runs of a study are done
  report DIR    write the report of the runs so far; --plot FILE also draws the differences and the learning curves;
                --into PAGE also replaces the tables between two marks in PAGE
  finer DIR     evaluate the trained models with the stride divided by 2 and 4 (--factors 2,4), on all held-out images
                or on --samples N of them; also takes --into PAGE

All four take --json. docs/study.md says more.

exit codes: 0 all runs are done; 3 the report is written, but some runs failed; 1 all runs failed or none could start;
2 wrong usage; 130 or 143 stopped by Ctrl-C or SIGTERM, with the state saved.

examples:
  tustin study digits --out runs/study
  tustin study digits --discretizations zoh,bil --seeds 5 --epochs 5 --out runs/short
  tustin study cifar100-nano --data.path data --jobs 2 --threads-per-run 4 --out runs/cifar
  tustin study imagenet-vim-tiny --data.path /imagenet --engine ray --ray-address auto --out /shared/study
  tustin study plan digits --seeds 7 --std 0.5
  tustin study status runs/study
  tustin study report runs/study"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "%(prog)s RECIPE [options] [--SETTING VALUE ...]\n"
        "       %(prog)s plan RECIPE [--std S] [options] [--SETTING VALUE ...]\n"
        "       %(prog)s {status,report,finer} DIR [--json]"
    )
    parser.add_argument("recipe", metavar="RECIPE", help=RECIPE_HELP)
    _add_options(parser)
    parser.add_argument(
        "words",
        metavar="--SETTING VALUE",
        nargs=argparse.REMAINDER,
        help="settings of the recipe to change, for all runs",
    )
    parser.set_defaults(parser=parser)


def _add_options(parser: argparse.ArgumentParser) -> None:
    """Nothing has a default here: what is not said is as it was in the study that continues."""
    parser.add_argument("--out", metavar="DIR", type=Path, help="folder of the study (default: runs/study-RECIPE)")
    parser.add_argument("--json", action="store_true", help="print counts, results and report files as JSON")
    what = parser.add_argument_group("what is compared")
    what.add_argument(
        "--discretizations",
        metavar="A,B",
        type=listed(str),
        help="rules to compare (default: the paper's: zoh,foh,bil,pol,hoh,rk4)",
    )
    what.add_argument(
        "--seeds", metavar="N", type=_seeds, help="number of seeds, starting at 0, or a list such as 3,5 (default: 10)"
    )
    what.add_argument(
        "--control",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="also train without a state, to see what the state is worth (default: yes)",
    )
    judged = parser.add_argument_group("how it is judged; may be changed later")
    judged.add_argument("--baseline", metavar="DISCRETIZATION", help="rule to compare the others with (default: zoh)")
    judged.add_argument("--metric", metavar="NAME", help="metric to compare (default: the main metric of the task)")
    judged.add_argument("--level", metavar="P", type=float, help="significance level of the test (default: 0.05)")
    judged.add_argument(
        "--threshold", metavar="X", type=float, help="smallest difference that matters in practice (default: 0.7)"
    )
    how = parser.add_argument_group("how it runs")
    how.add_argument(
        "--jobs",
        metavar="N",
        type=at_least_one,
        help="runs at the same time (default: one per GPU, or cores / threads)",
    )
    how.add_argument(
        "--threads-per-run",
        metavar="N",
        dest="threads",
        type=at_least_one,
        help="CPU threads per run; fixed for a study, because the last bits depend on it (default: 1)",
    )
    how.add_argument("--engine", choices=("local", "ray"), default="local", help="where to run (default: local)")
    how.add_argument("--ray-address", metavar="ADDRESS", help="Ray cluster (default: $RAY_ADDRESS, or start one here)")
    how.add_argument(
        "--keep",
        choices=("best", "all", "nothing"),
        default="best",
        help="files to keep of a run: best model and metrics, all, or only the result (default: best)",
    )
    how.add_argument("--retry-failed", action="store_true", help="repeat runs that failed")


def _seeds(text: str) -> list[int]:
    try:
        seeds = [int(part) for part in text.split(",")] if "," in text else range(at_least_one(text))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected a number of seeds or a list such as 3,5, got {shortened(text)}"
        ) from None
    if len(seeds) > MOST_SEEDS:
        raise argparse.ArgumentTypeError(f"expected at most {MOST_SEEDS} seeds, got {len(seeds)}")
    return list(seeds)


def run(args: argparse.Namespace) -> None:
    """One of the forms of the command."""
    insist_on("study")  # the report needs it, after all the runs
    forms: dict[str, Callable[[argparse.Namespace], None]] = {
        "plan": lambda args: study_forms.plan(args, _add_options, _config, _plan),
        "finer": study_forms.finer,
        "status": _run_status,
        "report": _run_report,
    }
    forms.get(args.recipe, _run_recipe)(args)


# --- tustin study RECIPE ----------------------------------------------------------------------------------------------


def _run_recipe(args: argparse.Namespace) -> None:
    settings = _take_options(args)
    if "--help" in settings or "-h" in settings:
        args.parser.print_help()
        return
    config = _config(args.recipe, settings)
    if config is None:
        return
    from ..study import display
    from ..study.runner import run_study

    folder: Path = args.out or Path("runs") / f"study-{Path(args.recipe).stem}"
    plan = _plan(args, config, folder)
    engine, where = _engine(args, plan)
    shown = display.for_this_output()
    control = f" and {plan.control}" if plan.control else ""
    grid = f"{_count(plan.discretizations, 'discretization')}{control} x {_count(plan.seeds, 'seed')}"
    shown.line(f"{plan.recipe}: {grid}, {where}, {_count(range(plan.threads), 'thread')} each, into {folder}")
    study = run_study(plan, config, folder, engine, shown, args.keep, args.retry_failed)
    _tell(study, folder, args.json)
    failures = [result for result in study.results if result.status == "failed"]
    if len(failures) == len(study.results):
        raise RuntimeError(f"every run failed, the first because: {failures[0].error}")
    if failures:
        raise SomeRunsFailed(
            f"{len(failures)} of {len(study.results)} runs failed, the first because: {failures[0].error}; "
            "--retry-failed repeats them"
        )


def _count(things: Sized, name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


def _take_options(args: argparse.Namespace) -> list[str]:
    """Move the options that stand after the recipe into `args`; the rest are settings of the recipe."""
    parser = study_forms.parser_like(args.parser)
    _add_options(parser)
    _, settings = parser.parse_known_args(args.words, args)
    return settings


def _config(recipe: str, settings: list[str]) -> Config | None:
    from ..study.plan import BY_THE_STUDY
    from ..train import recipes

    if not Path(recipe).suffix and recipe not in recipes():
        raise UsageError(
            unknown("recipe", recipe, [*recipes(), "plan", "status", "report", "finer"])
            + ", or the path of a YAML file"
        )
    for word in settings:
        name = word.removeprefix("--").partition("=")[0]
        if word.startswith("--") and name in BY_THE_STUDY:
            raise UsageError(f"{name} is not a setting of all runs: {BY_THE_STUDY[name]}")
    return recipe_settings(recipe, settings)


def _plan(args: argparse.Namespace, config: Config, folder: Path) -> Plan:
    from ..study.plan import Wishes, make_plan

    names = ("discretizations", "seeds", "baseline", "metric", "level", "threshold", "threads", "control")
    return make_plan(args.recipe, config, folder, Wishes(**{name: getattr(args, name) for name in names}))


def _engine(args: argparse.Namespace, plan: Plan) -> tuple[Engine, str]:
    """Who carries out the runs, and a few words about it."""
    if args.engine == "ray":
        from ..study.ray_engine import RayEngine

        return RayEngine(plan.threads, args.ray_address), "on Ray"
    from ..study.local_engine import LocalEngine, default_jobs

    jobs = args.jobs or default_jobs(plan.config["run.device"], plan.threads)
    return LocalEngine(jobs), f"{jobs} at a time"


# --- tustin study status, tustin study report -------------------------------------------------------------------------


def _run_status(args: argparse.Namespace) -> None:
    folder = study_forms.folder_of(args)
    if folder is None:
        return
    from ..study import read_study, status

    told = status.facts(read_study(folder), folder)
    if args.json:
        print_json(told)
    else:
        print_rich(*status.render(told))


def _run_report(args: argparse.Namespace) -> None:
    args.into = args.plot = None

    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--into", metavar="PAGE", type=Path)
        parser.add_argument("--plot", metavar="FILE", type=Path)

    folder = study_forms.folder_of(args, add)
    if folder is None:
        return
    from ..study import read_study, report, stats

    study = read_study(folder)
    if args.plot:
        from ..study.picture import draw_study

        draw_study(args.plot, stats.analyse(study))
    if args.into:
        report.publish(args.into, folder, study)
    _tell(study, folder, args.json)


def _tell(study: Study, folder: Path, json: bool) -> None:
    """Write the report, print its tables, and say where it is."""
    from ..study import report, stats, status

    files = report.write_report(folder)
    if json:
        print_json({**status.facts(study, folder), "report": [str(file) for file in files]})
    else:
        print_drawn(lambda console: report.print_tables(console, stats.analyse(study)))
        print(f"\nreport: {files[0]}")


COMMAND = Command("study", "compare rules over several seeds, in paired runs", DETAILS, configure, run, takes_rule=True)
