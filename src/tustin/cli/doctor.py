"""`tustin doctor`: what this machine offers, and the GPU kernels as compiled code."""

from __future__ import annotations

import argparse

from ..report import terminal
from .arguments import listed
from .command import Command
from .output import print_json, print_rich

__all__ = ["COMMAND"]

DETAILS = """\
Add its output to a bug report: it names neither user nor host.

--gpu-compile needs Triton but no GPU, and takes minutes. For every kernel, rule and dtype it prints registers, spills,
shared memory, instructions, global loads and stores, each relative to zoh, and a lower bound of the time. docs/gpu.md
explains the numbers.

examples:
  tustin doctor
  tustin doctor --json > doctor.json
  tustin doctor --gpu-compile sm_80,sm_90 --json > kernels.json"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the same facts as JSON")
    parser.add_argument(
        "--gpu-compile",
        nargs="?",
        const=[],
        type=listed(_target),
        metavar="A,B",
        help="only compile every GPU kernel, without a GPU, for sm_80,sm_90,sm_100,gfx942 (default: all)",
    )


def _target(text: str) -> str:
    from ..doctor.gpu import known_target

    try:
        return known_target(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def run(args: argparse.Namespace) -> None:
    if args.gpu_compile is not None:
        return _compile(args.gpu_compile, args.json)
    from .. import doctor
    from ..doctor.report import render

    facts = doctor.collect()
    if args.json:
        print_json(facts)
    else:
        print_rich(lambda width: render(facts))


def _compile(targets: list[str], as_facts: bool) -> None:
    from ..ops.accelerator import triton_missing

    if reason := triton_missing():
        raise RuntimeError(reason)
    from ..doctor.gpu import TARGETS, cases, report, survey

    with terminal.progress("tustin doctor") as progress:
        found = survey.survey(list(dict.fromkeys(targets)) or list(TARGETS), cases.cases(), progress)
    if as_facts:
        print_json(survey.as_facts(found))
    else:
        print_rich(lambda width: report.render(found))


COMMAND = Command("doctor", "show versions, processor and backends of this machine", DETAILS, configure, run)
