"""`tustin doctor`: what this machine offers, and the GPU kernels as compiled code."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from ..report import terminal
from ..support.devices import GPUS
from ..support.files import writable
from ..support.names import unknown
from .arguments import discretization, listed
from .command import Command, UsageError
from .output import print_json, print_rich

__all__ = ["COMMAND"]

DTYPES = ["float32", "bfloat16", "float16"]

DETAILS = """\
Add the output to a bug report. It contains no user name and no host name.

--gpu-compile needs Triton but no GPU. For every kernel, rule and dtype it prints registers, spills, shared memory,
instructions, global loads and stores, each relative to zoh, and a lower bound of the time. docs/gpu.md explains the
numbers. One GPU and one dtype take about a minute on two cores; compiled kernels are cached.

--gpu-check needs a GPU and takes some minutes. It compares every rule, forward and backward, in three dtypes, with
float64 on a CPU. It runs everything twice and compares the bits. It compares a training step of ViM-tiny with the CPU.
It also checks torch.compile and CUDA graphs, and measures speed and memory. The results go to FILE (gpu-check.json);
attach it to an issue. The exit code is 0 if all checks passed, 3 if one failed, 1 if none could run.

examples:
  tustin doctor
  tustin doctor --json > doctor.json
  tustin doctor --gpu-compile sm_90 --dtype float32
  tustin doctor --gpu-compile sm_80,sm_90 --json > kernels.json
  tustin doctor --gpu-compile sm_80,sm_90 --dtype float32 --markdown docs/gpu.md
  tustin doctor --gpu-compile sm_90 --listing hoh    # its loop over the tokens, with the source of each instruction
  tustin doctor --gpu-check
  TRITON_INTERPRET=1 tustin doctor --gpu-check --device cpu   # the same checks in Triton's interpreter"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the same facts as JSON")
    parser.add_argument(
        "--gpu-compile",
        nargs="?",
        const=[],
        type=listed(_target),
        metavar="A,B",
        help="only compile the GPU kernels, without a GPU, for these targets: sm_80,sm_90,sm_100,gfx942 (default: all)",
    )
    parser.add_argument(
        "--markdown", type=_report_file, metavar="FILE", help="replace the tables between the two marks in FILE"
    )
    parser.add_argument(
        "--listing",
        type=discretization,
        metavar="RULE",
        help="with --gpu-compile for one NVIDIA GPU: list the instructions of this rule's loop, by source line",
    )
    parser.add_argument(
        "--gpu-check",
        nargs="?",
        const=Path("gpu-check.json"),
        type=_report_file,
        metavar="FILE",
        help="only check the kernels on a GPU, and write the results to FILE (default: gpu-check.json)",
    )
    parser.add_argument("--device", type=_device, metavar="NAME", help="device to check (default: the first GPU)")
    parser.add_argument(
        "--dtype",
        type=listed(_dtype),
        metavar="A,B",
        help="dtypes of the inputs to compile for: float32,bfloat16,float16 (default: all)",
    )


def _target(text: str) -> str:
    from ..doctor.gpu import known_target

    try:
        return known_target(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _dtype(text: str) -> str:
    if text not in DTYPES:
        raise argparse.ArgumentTypeError(unknown("dtype", text, DTYPES))
    return text


def _device(text: str) -> str:
    if not re.fullmatch(rf"cpu|({'|'.join(GPUS)})(:\d{{1,3}})?", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"expected {GPUS[0]}, {GPUS[0]}:1 and so on, {GPUS[1]} or cpu, got {text!r}")
    return text


def _report_file(text: str) -> Path:
    try:
        return writable(Path(text))
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text}: {error.strerror}") from error


def run(args: argparse.Namespace) -> None:
    if args.gpu_compile is not None and args.gpu_check is not None:
        raise UsageError("--gpu-compile and --gpu-check cannot be used together")
    if args.device and args.gpu_check is None:
        raise UsageError("--device works only with --gpu-check")
    if args.markdown and args.gpu_compile is None:
        raise UsageError("--markdown works only with --gpu-compile")
    if args.listing:
        return _list(args)
    if args.gpu_compile is not None:
        return _compile(args.gpu_compile, args.dtype or DTYPES, args.markdown, args.json)
    if args.gpu_check is not None:
        return _check(args.device, args.gpu_check, args.json)
    if args.dtype:
        raise UsageError("--dtype works only with --gpu-compile")
    from .. import doctor
    from ..doctor.report import render

    facts = doctor.collect()
    if args.json:
        print_json(facts)
    else:
        print_rich(*render(facts))


def _check(name: str | None, file: Path, as_facts: bool) -> None:
    from ..report.formats import as_rich

    writable(file)
    from .. import gpu_check

    device = gpu_check.find(name)
    with terminal.progress("tustin doctor") as progress:
        facts = gpu_check.run(gpu_check.Plan.choose(), device, file, progress)
    if as_facts:
        print_json(facts)
    else:
        parts = [part for table in gpu_check.tables(facts) for part in (*as_rich(table), "")]
        where = f"All results are in {file}. Please attach it to an issue: it contains no user name and no host name."
        print_rich(*parts, gpu_check.summary(facts), where)
    if failed := gpu_check.failed(facts):
        raise gpu_check.ChecksFailed(f"{len(failed)} of {facts['counts']['all']} checks failed, the first: {failed[0]}")


def _compile(targets: list[str], dtypes: Sequence[str], markdown: Path | None, as_facts: bool) -> None:
    import torch

    from ..ops.accelerator import triton_missing

    if reason := triton_missing():
        raise RuntimeError(reason)
    from ..doctor.gpu import TARGETS, cases, page, report, survey

    targets = list(dict.fromkeys(targets)) or list(TARGETS)
    if markdown:
        if not {*page.NEEDED} <= {*targets} or page.DTYPE not in dtypes:
            raise UsageError(f"--markdown needs {','.join(page.NEEDED)} with inputs of {page.DTYPE}")
        page.insist(markdown)
    with terminal.progress("tustin doctor") as progress:
        chosen = cases.cases(dtypes=[getattr(torch, dtype) for dtype in dict.fromkeys(dtypes)])
        found = survey.survey(targets, chosen, progress)
    if markdown:
        page.write(markdown, found)
    if as_facts:
        print_json(survey.as_facts(found))
    else:
        print_rich(*report.render(found))


def _list(args: argparse.Namespace) -> None:
    if not args.gpu_compile or len(args.gpu_compile) > 1 or not args.gpu_compile[0].startswith("sm_"):
        raise UsageError("--listing needs one NVIDIA GPU, as in --gpu-compile sm_90")
    if args.dtype:
        raise UsageError("--listing works only for float32; leave out --dtype")
    from ..ops.accelerator import triton_missing

    if reason := triton_missing():
        raise RuntimeError(reason)
    from ..doctor.gpu import listing
    from ..ops.scan.triton_discretizations import DISCRETIZATIONS
    from ..report.formats import as_markdown, as_rich

    if args.listing not in DISCRETIZATIONS:
        raise UsageError(f"{args.listing} has no GPU kernel to list; expected one of {', '.join(DISCRETIZATIONS)}")
    if args.markdown:
        listing.BLOCK.split(args.markdown.read_text(encoding="utf-8"), str(args.markdown))
    found = listing.listing(args.gpu_compile[0], args.listing)
    table = listing.by_line(found)
    if args.markdown:
        listing.BLOCK.replace(args.markdown, as_markdown(table, level=4))
    if args.json:
        print_json(listing.as_facts(found))
    else:
        print_rich(listing.as_text(found), "", *as_rich(table))


COMMAND = Command("doctor", "show versions, processor and backends of this machine", DETAILS, configure, run)
