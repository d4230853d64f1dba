"""The `tustin` command: one table of commands, and the promise that a mistake is one line and not a traceback."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from ..report import terminal
from ..support.files import write_text
from ..support.signals import INTERRUPTED, Interrupted, interrupts
from . import discretizations, doctor, eval, info, predict, recipes, study, train
from .command import Command, UsageError, parse
from .output import as_json, print_json, print_rich

__all__ = ["COMMANDS", "main"]


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
        if args := parse(COMMANDS, argv):
            args.run(args)
        sys.stdout.flush()  # a closed pipe must show up here, not while the interpreter shuts down
        return 0
    except BrokenPipeError:
        _abandon_output()
        return 141
    except Interrupted as stopped:
        print(f"tustin: {stopped}", file=sys.stderr)
        return stopped.exit_code
    except Exception as error:
        if debug and not isinstance(error, UsageError):
            raise
        return _fail(error)


def _fail(error: Exception) -> int:
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
    code: int = getattr(error, "exit_code", 1)
    return code


def _abandon_output() -> None:
    """Drop what is still buffered; the interpreter would try to write it at exit and complain once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# --- tustin bench -----------------------------------------------------------------------------------------------------


def _configure_bench_scan(parser: argparse.ArgumentParser) -> None:
    from ..bench import options

    options.configure(parser)


def _run_bench_scan(args: argparse.Namespace) -> None:
    from ..bench import files, options, report, scan

    with terminal.progress("tustin bench") as show:
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


def _of_models(name: str, summary: str, kind: str) -> Command:
    """A benchmark of models, imported when it is asked for."""

    def configure(parser: argparse.ArgumentParser) -> None:
        from ..bench import model_commands

        parser.epilog = getattr(model_commands, f"{kind.upper()}_DETAILS")
        getattr(model_commands, f"configure_{kind}")(parser)

    def run(args: argparse.Namespace) -> None:
        from ..bench import model_commands

        getattr(model_commands, f"run_{kind}")(args)

    return Command(name, summary, "", configure, run)


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


COMMANDS = {
    command.name: command
    for command in (
        discretizations.COMMAND,
        doctor.COMMAND,
        train.COMMAND,
        recipes.COMMAND,
        study.COMMAND,
        eval.COMMAND,
        info.COMMAND,
        predict.COMMAND,
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
                "inference": _of_models(
                    "inference",
                    "time whole models: every rule and batch size, against zoh, DeiT and the paper",
                    "inference",
                ),
                "train": _of_models(
                    "train", "time a training step with every rule, against zoh, DeiT and the paper", "training"
                ),
                "resolution": _of_models(
                    "resolution", "time and memory of larger and larger images, against DeiT", "resolution"
                ),
            },
        ),
    )
}
"""Every command, in the order of the help: a new one needs a file and a line here."""
