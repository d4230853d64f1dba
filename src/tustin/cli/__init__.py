"""The `tustin` command: one table of commands, and the promise that a mistake is one line and not a traceback."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from .. import DISCRETIZATIONS, Discretization, __version__, predict
from ..bench import model_commands as models_bench
from ..study import command as study
from ..support.files import write_text
from ..support.names import unknown
from ..support.signals import INTERRUPTED, Interrupted, interrupts
from . import info

if TYPE_CHECKING:
    from rich.console import Console

    from ..train import Config


class UsageError(Exception):
    """The command line itself is wrong: exit code 2."""


@dataclass(frozen=True)
class Command:
    """One subcommand; what it needs beyond this module it imports inside `run`, so that others start quickly."""

    name: str
    summary: str
    details: str
    """What `tustin NAME --help` says below the options: what comes out, and examples."""
    configure: Callable[[argparse.ArgumentParser], None] = lambda parser: None
    run: Callable[[argparse.Namespace], None] | None = None
    """What it does; a command of commands does nothing by itself but show its help."""
    commands: dict[str, Command] = field(default_factory=dict)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code: 0 done, 1 failed, 2 wrong usage, 130 interrupted, 141 pipe closed.

    A training that was stopped by a signal has saved its state and ends with 130 (Ctrl-C) or 143 (SIGTERM). A study of
    which some runs have failed ends with 3.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    debug = "--debug" in argv  # asked for here, because a mistake may come before the arguments are parsed
    try:
        with interrupts() as pressed:
            code = _run(argv, debug)
            return INTERRUPTED if pressed.lost else code  # where a library has made something else of it
    except KeyboardInterrupt:
        if debug:
            raise
        return INTERRUPTED


def _run(argv: list[str], debug: bool) -> int:
    try:
        _dispatch(argv)
        sys.stdout.flush()  # a closed pipe must show up here, not while the interpreter shuts down
        return 0
    except BrokenPipeError:
        _abandon_output()
        return 141
    except UsageError as error:
        return _fail(error, 2)
    except Interrupted as stopped:
        print(f"tustin: {stopped}", file=sys.stderr)
        return stopped.exit_code
    except Exception as error:
        if debug:
            raise
        return _fail(error, 3 if isinstance(error, study.SomeRunsFailed) else 1)


def _dispatch(argv: list[str]) -> None:
    parser = _parser()
    known = COMMANDS
    for name in (word for word in argv if not word.startswith("-")):
        if not known:
            break
        if name not in known:  # argparse would not suggest the nearest
            raise UsageError(unknown("command", name, list(known)))
        known = known[name].commands
    try:
        args = parser.parse_args(argv)
    except SystemExit:  # argparse has printed the help or the version; its errors are UsageError
        return
    args.run(args)


def _fail(error: Exception, code: int) -> int:
    text = " ".join(str(error).split())  # one line, whatever the message holds
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    elif not isinstance(error, UsageError | ValueError | RuntimeError | OSError):  # nobody wrote this for a user
        text = f"{type(error).__name__}: {text} (run again with --debug for the traceback)"
    print(f"tustin: error: {text}", file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:  # the disk is full, say: the line above has told
        _abandon_output()
    return code


def _abandon_output() -> None:
    """Drop what is still buffered; the interpreter would try to write it at exit and complain once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Parser(argparse.ArgumentParser):
    """argparse, with a mistake raised to `main` instead of printed below five lines of usage."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see '{self.prog} --help')")


def _parser() -> _Parser:
    shared = _Parser(add_help=False)
    shared.add_argument("--debug", action="store_true", help="show the traceback of an error")
    options: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
    parser = _Parser(
        prog="tustin",
        description="State-space models whose discretization is a part you choose.",
        epilog="examples:\n  tustin discretizations\n  tustin doctor --json\n\n"
        "'tustin COMMAND --help' says more about each.",
        parents=[shared],
        **options,
    )
    parser.add_argument("--version", action="version", version=f"tustin {__version__}")
    _add_commands(parser, COMMANDS, shared, options)
    return parser


def _add_commands(
    parser: argparse.ArgumentParser, commands: dict[str, Command], shared: _Parser, options: dict[str, Any]
) -> None:
    parser.set_defaults(run=lambda args: parser.print_help())
    added = parser.add_subparsers(metavar="COMMAND", title="commands")
    for command in commands.values():
        subparser = added.add_parser(
            command.name,
            help=command.summary,
            description=f"{command.summary[0].upper()}{command.summary[1:]}.",
            epilog=command.details,
            parents=[shared],
            **options,
        )
        command.configure(subparser)
        if command.commands:
            _add_commands(subparser, command.commands, shared, options)
        else:
            subparser.set_defaults(run=command.run)


# --- output -----------------------------------------------------------------------------------------------------------


def print_json(facts: object) -> None:
    """Strict JSON: a number that is not finite becomes the string "inf", "-inf" or "nan", which `float` reads back."""
    print(as_json(facts, utf8=(sys.stdout.encoding or "").lower().replace("-", "") == "utf8"))


def as_json(facts: object, *, utf8: bool) -> str:
    """The text of `print_json`; where the letters of all languages cannot be written, they are escaped."""
    return json.dumps(_finite(facts), indent=2, ensure_ascii=not utf8, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def print_rich(render: Callable[[int], Sequence[Any]]) -> None:
    """Tables and text for the width of the terminal; plain where the output is not one."""
    print_drawn(lambda console: console.print(*render(console.width), sep="\n"))


def print_drawn(draw: Callable[[Console], None]) -> None:
    """What is drawn on a console of rich. It is written afterwards: rich would end the program on a closed pipe."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)  # a formula is not markup
    with console.capture() as capture:
        draw(console)
    text = "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, errors="replace").decode(encoding))  # a terminal without Greek letters


# --- tustin rules ---------------------------------------------------------------------------------------------------


def _configure_discretizations(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the same facts as JSON")
    parser.add_argument(
        "--plot", metavar="FILE", type=_picture_path, help="also draw what the rules do into FILE (.png, .svg or .pdf)"
    )


def _picture_path(text: str) -> Path:
    from ..report import rules_picture as picture

    try:
        picture.format_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return Path(text)


def _run_discretizations(args: argparse.Namespace) -> None:
    if args.plot:  # first: if it cannot be written, the error stands alone
        from ..report import rules_picture as picture

        picture.save(args.plot, list(DISCRETIZATIONS.values()))
    if args.json:
        print_json(
            {
                "tustin": __version__,
                "discretizations": [
                    discretization_facts(discretization) for discretization in DISCRETIZATIONS.values()
                ],
            }
        )
    else:
        print_rich(lambda width: [*_discretizations_tables(width), _DISCRETIZATIONS_LEGEND])
    if args.plot:
        print(f"tustin: wrote {args.plot}", file=sys.stderr)


def discretization_facts(discretization: Discretization) -> dict[str, Any]:
    """What a rule declares about itself, as plain data."""
    return {
        "name": discretization.name,
        "alpha": discretization.alpha,
        "betas": list(discretization.betas),
        "samples": discretization.taps,
        "order": discretization.order,
        "held_order": discretization.held_order,
        "stable": list(discretization.stable),
        "exact_equilibrium": discretization.exact_equilibrium,
        "source": discretization.source,
    }


def _discretizations_tables(width: int) -> list[Any]:
    """One table where there is room for it; otherwise the formulas first, then the facts."""
    from rich import box
    from rich.table import Table

    split = width < 160
    formulas, facts = _FORMULA_COLUMNS, _FACT_COLUMNS
    groups = [formulas, {"name": _FORMULA_COLUMNS["name"], **facts}] if split else [{**formulas, **facts}]
    tables: list[Any] = []
    for columns in groups:
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
        for header in columns:
            table.add_column(header, style="bold" if header == "name" else None, no_wrap=header == "name")
        for discretization in DISCRETIZATIONS.values():
            table.add_row(*(describe(discretization) for describe in columns.values()))
        tables += [table, ""]
    return tables


def _interval(low: float, high: float) -> str:
    left = "(−∞" if math.isinf(low) else f"[{low:.4g}"
    right = "∞)" if math.isinf(high) else f"{high:.4g}]"
    return f"{left}, {right}".replace("-", "−")


def _betas(discretization: Discretization) -> str:
    if discretization.taps == 1:
        return discretization.betas[0]
    return "\n".join(f"u_{f'{{k−{j}}}' if j else 'k'}: {formula}" for j, formula in enumerate(discretization.betas))


_FORMULA_COLUMNS: dict[str, Callable[[Discretization], str]] = {
    "name": lambda discretization: discretization.name,
    "α": lambda discretization: discretization.alpha,
    "β": _betas,
}
_FACT_COLUMNS: dict[str, Callable[[Discretization], str]] = {
    "samples": lambda discretization: str(discretization.taps),
    "order,\nsmooth\ninput": lambda discretization: str(discretization.order),
    "order,\nheld\ninput": lambda discretization: (
        "exact" if math.isinf(discretization.held_order) else f"{discretization.held_order:g}"
    ),
    "stable\nfor z in": lambda discretization: _interval(*discretization.stable),
    "exact\nequi-\nlibrium": lambda discretization: "yes" if discretization.exact_equilibrium else "no",
    "source": lambda discretization: discretization.source,
}

_DISCRETIZATIONS_LEGEND = """\
One step of h' = A·h + B·u is h_k = α·h_{k−1} + β·B·u_k, where z = Δ·A.
φ1(z) = (e^z − 1)/z, φ2(z) = (φ1(z) − 1)/z, φ3(z) = (φ2(z) − 1/2)/z, and so on.
order: the power of Δ with which the error falls, for a smooth input and for one
that really is held over each step; 0 means that it does not fall.
exact equilibrium: a constant input settles where the continuous system does."""

_DISCRETIZATIONS_DETAILS = """\
--json prints {"tustin": version, "discretizations": [...]}: name, alpha, betas (one formula per input sample, newest
first), samples, order, held_order, stable ([low, high] for z), exact_equilibrium, source. JSON has no infinity: such
a number is the string "inf" or "-inf", which Python's float() reads back. A held_order of "inf" means exact.

examples:
  tustin discretizations
  tustin discretizations --plot discretizations.png
  tustin discretizations --json --plot discretizations.svg > discretizations.json"""


# --- tustin doctor ----------------------------------------------------------------------------------------------------


def _configure_doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the same facts as JSON")
    parser.add_argument(
        "--gpu-compile",
        nargs="*",
        type=_gpu_target,
        metavar="TARGET",
        help="instead, compile every GPU kernel, without a GPU, for sm_80, sm_90, sm_100, gfx942 (default: all)",
    )


def _gpu_target(text: str) -> str:
    from ..doctor.gpu import known_target

    try:
        return known_target(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _run_doctor(args: argparse.Namespace) -> None:
    from .. import doctor

    if args.gpu_compile is not None:
        return _run_gpu_compile(args.gpu_compile, args.json)
    facts = doctor.collect()
    if args.json:
        print_json(facts)
    else:
        print_rich(lambda width: doctor.render(facts))


def _run_gpu_compile(targets: list[str], as_facts: bool) -> None:
    from ..bench import progress
    from ..ops.accelerator import triton_missing

    if reason := triton_missing():
        raise RuntimeError(reason)
    from ..doctor.gpu import TARGETS, cases, report, survey

    with progress.shown("tustin doctor") as show:
        found = survey.survey(list(dict.fromkeys(targets)) or list(TARGETS), cases.cases(), show)
    if as_facts:
        print_json(survey.as_facts(found))
    else:
        print_rich(lambda width: report.render(found))


_DOCTOR_DETAILS = """\
Add its output to a bug report: it names neither user nor host.

--gpu-compile needs Triton and minutes, but no GPU: registers, spills, shared memory, instructions, global loads and
stores of every kernel, rule and dtype, next to zoh's, and an estimate of the least time. docs/gpu.md explains it.

examples:
  tustin doctor
  tustin doctor --json > doctor.json
  tustin doctor --gpu-compile sm_80 sm_90 --json > kernels.json"""


# --- tustin bench -----------------------------------------------------------------------------------------------------


def _configure_bench_scan(parser: argparse.ArgumentParser) -> None:
    from ..bench import options

    options.configure(parser)


def _run_bench_scan(args: argparse.Namespace) -> None:
    from ..bench import files, options, progress, report, scan

    with progress.shown() as show:
        result = scan.run(options.from_arguments(args), show)
    facts = scan.as_facts_of(result)
    if args.markdown:
        files.SCAN.replace(args.markdown, report.for_markdown(result, options.command_line(args)))
    if args.json and str(args.json) != "-":
        write_text(args.json, as_json(facts, utf8=True) + "\n")
    if str(args.json) == "-":
        print_json(facts)
    else:
        print_rich(lambda width: report.for_terminal(result, width))
    for path in (args.markdown, args.json):
        if path and str(path) != "-":
            print(f"tustin: wrote {path}", file=sys.stderr)


_BENCH_DETAILS = """\
examples:
  tustin bench
  tustin bench scan --quick
  tustin bench inference"""

_BENCH_SCAN_DETAILS = """\
Every rule on every backend, and torch.compile of the reference, beside mambapy's selective scan, at D 384 and N 16, in
turns; then the limits of the machine, the share of them that the kernel reaches, and the checks. Takes some minutes,
and an otherwise idle machine: what else runs shows up in the numbers. docs/performance.md explains the tables.
With --levels the instruction sets of the native backend beside each other. All but v2 give the same bits.
With --device cuda the fused GPU kernel, beside mamba_ssm's selective_scan_fn where that is installed.

--json holds the same: options, machine, limits, cells (seconds per call: low and high quartile and median, and all laps
as [party, round, lap, seconds]; times_faster_than_mambapy, or _mamba_ssm; skipped_because), rates and checks.

examples:
  tustin bench scan
  tustin bench scan --quick --json scan.json
  tustin bench scan --discretizations mamba bil --lengths 197 --batch-sizes 1 8 --threads 1
  tustin bench scan --device cuda
  tustin bench scan --levels
  tustin bench scan --markdown docs/performance.md"""


# --- tustin train -----------------------------------------------------------------------------------------------------


def _configure_train(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", metavar="RECIPE", help="name of a shipped recipe ('tustin recipes') or a YAML file")
    parser.add_argument(
        "settings", metavar="--SETTING VALUE", nargs=argparse.REMAINDER, help="what to change; RECIPE --help lists all"
    )


def _run_train(args: argparse.Namespace) -> None:
    config = recipe_settings(args.recipe, args.settings)
    if config is None:
        return
    from ..train import display, train

    summary = train(config, display=display.for_this_output())
    best = ", ".join(display.metrics_text(summary["best"]))
    if int(os.environ.get("RANK", "0")) == 0:
        print(f"best epoch {summary['best_epoch']}: {best}; {summary['train_seconds']:.1f} s; {config.out}")


def recipe_settings(recipe: str, words: list[str]) -> Config | None:
    """The recipe with what the command line changes; None if it only asked to print something."""
    from ..train import settings

    try:
        return settings.parse(recipe, [word for word in words if word != "--debug"])
    except SystemExit:  # --help or --print_config has printed
        return None
    except (argparse.ArgumentError, ValueError, FileNotFoundError) as error:
        raise UsageError(str(error)) from error


_TRAIN_DETAILS = """\
The output folder gets checkpoints, metrics.jsonl (a line an epoch) and summary.json. The same command again continues
where the last one stopped, however that was. Under torchrun or accelerate launch it uses all their processes.

examples:
  tustin train digits
  tustin train digits --model.discretization zoh --seed 1 --epochs 5
  tustin train cifar100 --data.path data --out runs/cifar
  tustin train digits --help
  tustin train digits --print_config > mine.yaml
  torchrun --nproc_per_node 4 -m tustin train imagenet-vim-tiny --data.path imagenet"""


# --- tustin recipes ---------------------------------------------------------------------------------------------------


def _run_recipes(args: argparse.Namespace) -> None:
    from ..train import recipes

    known = recipes()
    width = max(map(len, known))
    for name, description in known.items():
        print(f"{name:{width}}  {description}")


_RECIPES_DETAILS = """\
examples:
  tustin recipes
  tustin train digits"""


# --- tustin eval ------------------------------------------------------------------------------------------------------


def _configure_eval(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", type=Path, help="a file of 'tustin train' or tustin.save")
    where = parser.add_argument_group("data", "by default those that it was trained on")
    kinds = ("digits", "cifar10", "cifar100", "folder", "ade20k", "masks", "coco")
    where.add_argument("--data.name", dest="data_name", choices=kinds, help="which data; with a path, a folder")
    where.add_argument("--data.path", dest="data_path", metavar="FOLDER", help="where they are")
    where.add_argument(
        "--data.skip_corrupt", dest="skip_corrupt", action="store_true", help="skip images that cannot be read"
    )
    parser.add_argument(
        "--segmentation.window", dest="window", choices=("whole", "slide"), help="by default as in training"
    )
    parser.add_argument(
        "--batch-size", type=info.at_least_one, help="images at once (default: 128 to classify, or else 8)"
    )
    parser.add_argument("--workers", type=_workers, default=0, help="processes that load images (default: 0)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _workers(text: str) -> int:
    return 0 if text == "0" else info.at_least_one(text)


def _run_eval(args: argparse.Namespace) -> None:
    from ..train import display
    from ..train.evaluation import evaluate_checkpoint

    settings = {"segmentation.window": args.window} if args.window else {}
    result = evaluate_checkpoint(
        args.checkpoint, args.data_name, args.data_path, args.skip_corrupt, args.batch_size, args.workers, settings
    )
    if args.json:
        print_json(result)
    else:
        metrics = ", ".join(display.metrics_text(result["metrics"]))
        print(f"{result['checkpoint']}, {result['discretization']}: {metrics} ({result['samples']} images)")
        if "box_ap75" in result["metrics"]:
            from ..train import average_precision

            print_rich(lambda width: [average_precision.table(result["metrics"])])


_EVAL_DETAILS = """\
examples:
  tustin eval runs/digits-bil-0/best.safetensors
  tustin eval best.safetensors --data.name folder --data.path photos --json"""


COMMANDS = {
    command.name: command
    for command in (
        Command(
            "discretizations",
            "list the discretization rules and what they do",
            _DISCRETIZATIONS_DETAILS,
            _configure_discretizations,
            _run_discretizations,
        ),
        Command(
            "doctor",
            "show versions, processor and the scan backends of this machine",
            _DOCTOR_DETAILS,
            _configure_doctor,
            _run_doctor,
        ),
        Command(
            "train",
            "train a model by a recipe, or continue a run",
            _TRAIN_DETAILS,
            _configure_train,
            _run_train,
        ),
        Command("recipes", "list the shipped recipes", _RECIPES_DETAILS, run=_run_recipes),
        Command("study", "compare discretizations, in pairs of runs", study.DETAILS, study.configure, study.run),
        Command("eval", "measure a checkpoint on held-out images", _EVAL_DETAILS, _configure_eval, _run_eval),
        Command(
            "info",
            "show parameters, FLOPs and memory of a model",
            info.DETAILS,
            info.configure,
            info.run,
        ),
        Command("predict", "tell what images show", predict.DETAILS, predict.configure, predict.run),
        Command(
            "bench",
            "measure how fast it is, beside its peers",
            _BENCH_DETAILS,
            commands={
                "scan": Command(
                    "scan",
                    "time the selective scan: every rule, backend and length, against mambapy and the machine's limits",
                    _BENCH_SCAN_DETAILS,
                    _configure_bench_scan,
                    _run_bench_scan,
                ),
                "inference": Command(
                    "inference",
                    "time whole models: every rule and batch size, against zoh, DeiT and the paper",
                    models_bench.INFERENCE_DETAILS,
                    models_bench.configure_inference,
                    models_bench.run_inference,
                ),
                "train": Command(
                    "train",
                    "time a training step with every rule, against zoh, DeiT and the paper",
                    models_bench.TRAINING_DETAILS,
                    models_bench.configure_training,
                    models_bench.run_training,
                ),
                "resolution": Command(
                    "resolution",
                    "time and memory of larger and larger images, against DeiT",
                    models_bench.RESOLUTION_DETAILS,
                    models_bench.configure_resolution,
                    models_bench.run_resolution,
                ),
            },
        ),
    )
}
"""Every command, in the order of the help: a new one needs an entry here and nothing else."""


if __name__ == "__main__":
    sys.exit(main())
