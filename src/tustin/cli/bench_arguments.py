"""The arguments of the benchmarks: each is written the same way in all that have it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..support.devices import GPUS
from ..support.files import writable
from ..support.names import unknown
from .arguments import at_least_one, discretization, listed, picture
from .command import UsageError

if TYPE_CHECKING:
    from ..report.measurement import Options

MODEL = "vim_tiny_patch16_224"
PAPER_DISCRETIZATIONS = ("zoh", "foh", "bil", "pol", "hoh", "rk4")
BACKENDS = ("native", "mambapy", "reference", "compiled")
"""Who is timed on a CPU: ours, the peer, and torch.compile of the reference."""
GPU_BACKENDS = ("triton", "mamba_ssm", "reference")
"""Who is timed on a GPU."""
BATCH_SIZES = {"cpu": (1, 4, 8, 16, 32), "gpu": (1, 4, 8, 16, 32, 64, 128, 256, 512)}
TRAINING_BATCH = {"cpu": (8,), "gpu": (64,)}


# --- what a value may be ----------------------------------------------------------------------------------------------


def threads(text: str) -> int:
    """No more than there are cores."""
    number, cores = at_least_one(text), os.cpu_count() or 1
    if number > cores:
        raise argparse.ArgumentTypeError(f"expected at most {cores}, the number of cores, got {number}")
    return number


def vision_mamba(text: str) -> str:
    """The name of a model."""
    import timm

    from .. import models  # noqa: F401  from now on timm knows them

    names = timm.list_models(module="vim")
    if text not in names:
        raise argparse.ArgumentTypeError(unknown("model", text, names))
    return text


def folder(text: str) -> Path:
    """One that is there, or can be made."""
    path = Path(text)
    nearest = next(parent for parent in (path.resolve(), *path.resolve().parents) if parent.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        problem = "it cannot be written" if nearest.is_dir() else f"{nearest.name} is a file, not a folder"
        raise argparse.ArgumentTypeError(f"{text}: {problem}")
    return path


def output(text: str) -> Path:
    """Where to write. Checked now and not after minutes of measuring."""
    if text == "-":
        raise argparse.ArgumentTypeError("only --json can write to the standard output")
    try:
        return writable(Path(text))
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text}: {error.strerror}") from error


def json_output(text: str) -> Path:
    """The same, or "-" for the standard output."""
    return Path(text) if text == "-" else output(text)


def marked(benchmark: str) -> Callable[[str], Path]:
    """A page that has the marks of the benchmark's block."""
    from ..report.block import Block

    def page(text: str) -> Path:
        path = Path(text)
        try:
            Block(benchmark).split(writable(path).read_text(encoding="utf-8"), text)
        except OSError as error:
            raise argparse.ArgumentTypeError(f"{text}: {error.strerror}") from error
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
        return path

    return page


# --- the arguments ----------------------------------------------------------------------------------------------------

ARGUMENTS: dict[str, dict[str, Any]] = {
    "device": {"choices": ("auto", "cpu", *GPUS)},
    "quick": {"action": "store_true", "help": "two or three minutes: fewer shapes and rounds, no slow backends"},
    "model": {"type": vision_mamba, "metavar": "NAME", "help": f"name of the model (default: {MODEL})"},
    "discretization": {"type": discretization, "metavar": "NAME", "help": "the rule (default: bil)"},
    "discretizations": {"type": listed(discretization), "metavar": "A,B"},
    "lengths": {"type": listed(at_least_one), "metavar": "A,B"},
    "batch-sizes": {"type": listed(at_least_one), "metavar": "A,B"},
    "sizes": {"type": listed(at_least_one), "metavar": "A,B"},
    "dtype": {
        "choices": ("float32", "bfloat16", "float16", "float64"),
        "help": "dtype of the inputs (default: float32)",
    },
    "layout": {
        "choices": ("channel-last", "token-last"),
        "help": "memory layout (default: channel-last, as in mambapy)",
    },
    "threads": {"type": threads, "metavar": "T", "help": "CPU threads (default: as many as PyTorch uses)"},
    "rounds": {"type": at_least_one, "metavar": "R"},
    "backends": {
        "type": listed(str),
        "metavar": "A,B",
        "help": f"default: {','.join(BACKENDS)}; on a GPU {','.join(GPU_BACKENDS)}; quick: the first two",
    },
    "compile": {"action": "store_true", "help": "also measure zoh and DeiT under torch.compile"},
    "levels": {
        "action": "store_true",
        "help": "only compare the native backend's instruction sets, with one thread and with all",
    },
}
"""By name, in the order of a command line; what is not given is None or False."""


def add_arguments(parser: argparse.ArgumentParser, names: dict[str, str]) -> None:
    """Those named; a text replaces the help that all have in common."""
    for name, text in names.items():
        parser.add_argument(f"--{name}", **ARGUMENTS[name] | ({"help": text} if text else {}))


def add_outputs(parser: argparse.ArgumentParser, benchmark: str, plot: bool) -> None:
    group = parser.add_argument_group("what is written")

    def add(name: str, kind: Callable[[str], Path], text: str, **more: Any) -> None:
        group.add_argument(name, type=kind, metavar="FILE", help=text, **more)

    add("--json", json_output, "write JSON to FILE, or to stdout instead of tables", nargs="?", const="-")
    add("--markdown", marked(benchmark), "replace the tables between the two marks in FILE")
    add("--latex", output, "write the tables as LaTeX")
    if plot:
        add("--plot", lambda text: output(str(picture(text))), "draw the results to FILE (.png, .svg or .pdf)")
    everything = "write all of these, and the times as CSV, to this folder"
    group.add_argument("--out", type=folder, metavar="DIR", help=everything)
    add("--from", Path, "show results that --json wrote; measure nothing", dest="source")


def command_line(benchmark: str, args: argparse.Namespace) -> str:
    """The command that makes the same run again."""
    words = [f"tustin bench {benchmark}"]
    for name in ARGUMENTS:
        value = getattr(args, name.replace("-", "_"), None)
        if value is None or value is False:
            continue
        values = [] if value is True else [",".join(map(str, value)) if isinstance(value, list) else str(value)]
        words += [f"--{name}", *values]
    return " ".join(words)


# --- what they mean ---------------------------------------------------------------------------------------------------


def options(args: argparse.Namespace, quickly: Mapping[str, Any] | None = None, **usual: Any) -> Options:
    """What was asked for, and the usual for the rest; numbers in their order, and nothing twice."""
    import torch

    from ..report.measurement import Options

    asked = {field.name: getattr(args, field.name, None) for field in fields(Options)} | {"levels": None}
    if quickly and args.quick:
        usual |= quickly
    found = {"threads": torch.get_num_threads()} | usual | {name: value for name, value in asked.items() if value}
    if "device" in args:
        found["device"] = device_of(found.get("device"))
    found |= {name: tuple(sorted({*found[name]})) for name in ("batch_sizes", "lengths", "sizes") if name in found}
    found |= {name: tuple(dict.fromkeys(found[name])) for name in ("discretizations", "backends") if name in found}
    return Options(**found)


def scan_options(args: argparse.Namespace) -> Options:
    from ..discretize import FUSED
    from ..ops import native

    rules = [rule.name for rule in FUSED]
    quickly = {"rounds": 3, "batch_sizes": (8,), "lengths": (197, 6085)}
    usual = {"device": "cpu", "rounds": 7, "batch_sizes": (1, 8), "lengths": (64, 197, 785, 6085)}
    found = options(args, quickly, discretizations=rules, **usual)
    known = BACKENDS if found.device == "cpu" else GPU_BACKENDS
    if wrong := [name for name in found.backends if name not in known]:
        raise UsageError(f"--backends: {unknown('backend', wrong[0], known)} on {found.device}")
    if args.levels and (found.device != "cpu" or args.markdown):
        raise ValueError("--levels works only on the CPU and without --markdown")
    backends = found.backends or (known[:2] if args.quick else known)
    return replace(found, backends=backends, levels=tuple(native.cpu_levels()) if args.levels else ())


def inference_options(args: argparse.Namespace, usual: Mapping[str, tuple[int, ...]] = BATCH_SIZES) -> Options:
    from ..report.speed import BASELINE

    found = options(args, discretizations=PAPER_DISCRETIZATIONS, model=MODEL)
    batch_sizes = found.batch_sizes or usual["cpu" if found.device == "cpu" else "gpu"]
    rules = tuple(dict.fromkeys((BASELINE, *found.discretizations)))
    return replace(found, discretizations=rules, batch_sizes=batch_sizes)


def beside_deit(args: argparse.Namespace, **usual: Any) -> Options:
    from ..bench.models import PEERS

    found = options(args, model=MODEL, discretizations=(args.discretization or "bil",), **usual)
    if found.model not in PEERS:
        raise ValueError(f"--model {found.model}: there is no DeiT of this size; expected one of {', '.join(PEERS)}")
    if wrong := [size for size in found.sizes if size % 16]:
        raise ValueError(f"--sizes: {wrong[0]} pixels is not a multiple of the patch size, 16")
    return found


def device_of(asked: str | None) -> str:
    """Where to run; RuntimeError if a GPU is asked for that is not there."""
    import torch

    from .. import doctor

    if asked in (None, "auto"):
        found = torch.accelerator.current_accelerator(check_available=True)
        return found.type if found and found.type in GPUS else "cpu"
    if asked != "cpu" and (reason := doctor.no_gpu_because(asked)):
        raise RuntimeError(f"--device {asked}: {reason}")
    return str(asked)
