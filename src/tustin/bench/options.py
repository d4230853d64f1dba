"""What `tustin bench scan` can be told."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields
from typing import Any

import torch

from ..discretize import DISCRETIZATIONS
from ..doctor import no_gpu_because
from ..ops import native
from ..ops.accelerator import GPUS
from . import arguments, files

BACKENDS = ("native", "mambapy", "reference", "compiled")
"""Who is timed on a CPU: ours, the peer, and torch.compile of the reference."""
GPU_BACKENDS = ("triton", "mamba_ssm", "reference")
"""Who is timed on a GPU."""
DEVICES = ("cpu", *GPUS)
DTYPES = ("float32", "bfloat16", "float16", "float64")
LAYOUTS = ("channel-last", "token-last")
"""In which dimension of (batch, D, L) neighbours in memory lie: D, as a linear layer leaves it, or L."""


_DEFAULTS = {"device": DEVICES[0], "dtype": DTYPES[0], "layout": LAYOUTS[0]}


@dataclass(frozen=True)
class Options:
    """One run of the benchmark."""

    discretizations: tuple[str, ...]
    lengths: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    dtype: str
    layout: str
    threads: int
    repeats: int
    backends: tuple[str, ...]
    quick: bool
    device: str = DEVICES[0]
    levels: tuple[str, ...] = ()
    """Instruction sets to compare, instead of backends."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options to the parser of `tustin bench scan`."""
    parser.add_argument(
        "--quick", action="store_true", help="two or three minutes: fewer shapes and repeats, no slow peers"
    )
    parser.add_argument(
        "--discretizations",
        nargs="+",
        type=arguments.discretization,
        metavar="NAME",
        help="only these rules (default: all)",
    )
    parser.add_argument(
        "--lengths", nargs="+", type=arguments.positive, metavar="L", help="default: 64 197 785 6085; quick: 197 6085"
    )
    parser.add_argument(
        "--batch-sizes", nargs="+", type=arguments.positive, metavar="BATCH", help="default: 1 8; quick: 8"
    )
    parser.add_argument(
        "--device", choices=DEVICES, default=_DEFAULTS["device"], help="where to run (default: cpu); cuda is AMD's, too"
    )
    parser.add_argument("--dtype", choices=DTYPES, default=_DEFAULTS["dtype"], help="of the inputs (default: float32)")
    parser.add_argument(
        "--layout",
        choices=LAYOUTS,
        default=_DEFAULTS["layout"],
        help="of the inputs (default: channel-last, as mambapy has it)",
    )
    parser.add_argument("--threads", type=arguments.threads, metavar="T", help="default: as many as torch uses")
    parser.add_argument(
        "--repeats", type=arguments.positive, metavar="R", help="rounds over all candidates; default: 7, quick: 3"
    )
    parser.add_argument(
        "--backends",
        nargs="+",
        choices=tuple(dict.fromkeys((*BACKENDS, *GPU_BACKENDS))),
        metavar="NAME",
        help=f"default: {' '.join(BACKENDS)}, on a GPU {' '.join(GPU_BACKENDS)}; quick: the first two",
    )
    parser.add_argument(
        "--levels",
        action="store_true",
        help="instead, compare the instruction sets that the native backend has here, on one thread and on all",
    )
    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        type=arguments.output,
        metavar="FILE",
        help="everything as JSON, into FILE or instead",
    )
    parser.add_argument(
        "--markdown",
        type=arguments.marked(files.SCAN),
        metavar="FILE",
        help="also renew the tables between the two marks in FILE; not with --levels",
    )


def from_arguments(args: argparse.Namespace) -> Options:
    """The options of a parsed command line, with the defaults filled in."""
    known = BACKENDS if args.device == "cpu" else GPU_BACKENDS
    if args.device != "cpu" and (reason := no_gpu_because(args.device)):
        raise RuntimeError(f"--device {args.device}: {reason}")
    if wrong := [name for name in args.backends or [] if name not in known]:
        raise ValueError(f"--backends: {wrong[0]} is not measured on {args.device}; there are {', '.join(known)}")
    if args.levels and (args.device != "cpu" or args.markdown):
        raise ValueError("--levels compares what the native backend has: on the CPU, without --markdown")
    return Options(
        discretizations=tuple(dict.fromkeys(args.discretizations or DISCRETIZATIONS)),
        lengths=tuple(sorted(set(args.lengths or ((197, 6085) if args.quick else (64, 197, 785, 6085))))),
        batch_sizes=tuple(sorted(set(args.batch_sizes or ((8,) if args.quick else (1, 8))))),
        dtype=args.dtype,
        layout=args.layout,
        threads=args.threads or torch.get_num_threads(),
        repeats=args.repeats or (3 if args.quick else 7),
        backends=tuple(dict.fromkeys(args.backends or (known[:2] if args.quick else known))),
        quick=args.quick,
        device=args.device,
        levels=tuple(native.cpu_levels()) if args.levels else (),
    )


def command_line(args: argparse.Namespace) -> str:
    """The command that makes the same run again."""
    words = ["tustin bench scan"]
    names = (
        "device",
        "quick",
        "discretizations",
        "lengths",
        "batch_sizes",
        "dtype",
        "layout",
        "threads",
        "repeats",
        "backends",
        "levels",
    )
    for name in names:
        value = getattr(args, name)
        if value is None or value is False or value == _DEFAULTS.get(name):
            continue
        values = value if isinstance(value, list) else [] if value is True else [value]
        words.append(" ".join([f"--{name.replace('_', '-')}", *map(str, values)]))
    return " ".join(words)


def as_facts(options: Options) -> dict[str, Any]:
    """The options as plain data."""
    facts = {field.name: getattr(options, field.name) for field in fields(options)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in facts.items()}
