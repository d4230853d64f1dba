"""`tustin bench`: the benchmarks as commands, and what they print and write."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..report import terminal
from ..support.files import write_text
from . import bench_arguments as arguments
from .command import Command
from .output import print_json, print_rich

if TYPE_CHECKING:
    from ..bench.outcome import Outcome
    from ..report.measurement import Options, Result

_RULES = "rules, with commas between them; zoh is always measured (default: the six of the paper)"
_GPU = "where to run (default: a GPU if there is one)"
_ROUNDS = "number of rounds; with few, no rule is called faster (default: 10 to 24, as many as fit into nine minutes)"


@dataclass(frozen=True)
class Benchmark:
    """One of the commands. Its modules are imported when it runs, so that other commands start quickly."""

    name: str
    summary: str
    details: str
    arguments: dict[str, str]
    """Their names, and the help where it is not the usual one."""
    options: Callable[[argparse.Namespace], Options]
    run: str
    """MODULE.FUNCTION of `tustin.bench` that measures."""
    outcome: str
    """MODULE.FUNCTION of `tustin.bench` that says what follows."""
    plot: bool = False

    def command(self) -> Command:
        return Command(self.name, self.summary, self.details, self._configure, self._execute)

    def _configure(self, parser: argparse.ArgumentParser) -> None:
        arguments.add_arguments(parser, self.arguments)
        arguments.add_outputs(parser, self.name, self.plot)

    def _execute(self, args: argparse.Namespace) -> None:
        make = _function(self.outcome)  # which also makes its kinds of cases known
        if args.source:
            _write(self._read(args, make), args)
            return
        options, command = self.options(args), arguments.command_line(self.name, args)
        with terminal.progress("tustin bench") as show:
            result = _function(self.run)(options, command, show)
        _write(make(result), args)

    def _read(self, args: argparse.Namespace, make: Callable[[Result], Outcome]) -> Outcome:
        from ..report.measurement import Result

        alone = f"tustin bench {self.name}"
        if (given := arguments.command_line(self.name, args)) != alone:
            raise ValueError(f"--from {args.source}: nothing is measured, so{given.removeprefix(alone)} has no effect")
        result = Result.read(args.source, self.name)
        try:
            return make(result)
        except (ValueError, LookupError, TypeError, ArithmeticError) as error:  # it lacks a case, say
            reason = f": {error}" if type(error) is ValueError else ""
            raise ValueError(f"{args.source} is not a complete result of '{alone}'{reason}") from error


def _function(path: str) -> Callable[..., Any]:
    module, _, name = path.partition(".")
    function: Callable[..., Any] = getattr(importlib.import_module(f"..bench.{module}", __package__), name)
    return function


def _write(outcome: Outcome, args: argparse.Namespace) -> None:
    """Every form where it was asked for; then the tables on the terminal, or JSON instead of them."""
    from ..report.block import Block
    from ..report.formats import as_csv, json_text
    from ..report.plot_style import save_figure

    name, draw, facts = outcome.result.benchmark, outcome.draw, outcome.facts()
    forms: dict[str, Callable[[Path], object]] = {"png": lambda path: save_figure(path, draw)} if draw else {}
    image = f"{name}.png" if draw else None
    forms |= {
        "json": lambda path: write_text(path, json_text(facts)),
        "csv": lambda path: write_text(path, as_csv(outcome.result.table())),
        "tex": lambda path: write_text(path, outcome.as_latex()),
        "md": lambda path: write_text(path, f"# tustin bench {name}\n\n{outcome.as_markdown(image, level=2)}"),
    }
    plot, page = getattr(args, "plot", None), args.markdown
    asked = [(plot, "png"), (args.json, "json"), (args.latex, "tex")]
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        asked += [(args.out / f"{name}.{ending}", ending) for ending in forms]
    asked = [(path, form) for path, form in asked if path and str(path) != "-"]
    for path, form in asked:
        forms[form](path)
    if page:
        shown = Path(os.path.relpath(plot.resolve(), page.resolve().parent)).as_posix() if plot else None
        Block(name).replace(page, outcome.as_markdown(shown, level=3))
    if str(args.json) == "-":
        print_json(facts)
    else:
        print_rich(*outcome.for_terminal())
    for path in [*(path for path, _ in asked), *([page] if page else [])]:
        print(f"tustin: wrote {path}", file=sys.stderr)


_DETAILS = """\
Every benchmark can write its results: --json FILE, or --out DIR for JSON, CSV, Markdown, LaTeX and a picture.
--from FILE makes all of these again from the JSON, without measuring.

examples:
  tustin bench
  tustin bench scan --quick
  tustin bench inference --out benchmarks/results
  tustin bench inference --from benchmarks/results/inference.json --plot inference.svg"""

_BENCHMARKS = (
    Benchmark(
        "scan",
        "time the selective scan: every rule, backend and length, compared with mambapy and the machine's limits",
        """\
Times every rule on every backend, the compiled reference, and mambapy's selective scan, with D 384 and N 16. Also
measures the limits of the machine, and which share of them the kernel reaches. Takes some minutes. Run nothing else at
the same time: it would change the numbers. docs/performance.md explains the tables.
--levels compares the instruction sets of the native backend. All but v2 give the same bits.
--device cuda times the fused GPU kernel, and mamba_ssm's selective_scan_fn if that is installed.

--json holds options, machine, cases (seconds per call: lower quartile, median, upper quartile, and all laps as
[party, round, lap, seconds]; times_faster_than_mambapy, or _mamba_ssm), skipped, limits, rates, checks and tables.

examples:
  tustin bench scan
  tustin bench scan --quick --json scan.json
  tustin bench scan --discretizations mamba,bil --lengths 197 --batch-sizes 1,8 --threads 1
  tustin bench scan --device cuda
  tustin bench scan --levels
  tustin bench scan --markdown docs/performance.md""",
        {
            "quick": "",
            "discretizations": "rules, with commas between them (default: all)",
            "lengths": "tokens (default: 64,197,785,6085; quick: 197,6085)",
            "batch-sizes": "sequences per call (default: 1,8; quick: 8)",
            "device": "where to run (default: cpu); use cuda for AMD GPUs, too",
            "dtype": "",
            "layout": "",
            "threads": "",
            "rounds": "number of rounds; each times every candidate (default: 7; quick: 3)",
            "backends": "",
            "levels": "",
        },
        arguments.scan_options,
        "scan.run",
        "scan_tables.outcome",
    ),
    Benchmark(
        "inference",
        "time inference of whole models: every rule and batch size, compared with zoh, DeiT and the paper",
        """\
Measures latency, throughput and memory of Vision Mamba with every rule, of DeiT and of the reference backend, at each
batch size. All candidates run in every round, and ratios are formed within a round. A difference counts only if it
exceeds the measured noise; everything else is called a tie. Batch sizes that would not fit into memory are left out.
Takes up to ten minutes on an otherwise idle machine. docs/performance.md explains the tables.

--out DIR writes inference.json, .csv, .md, .tex and .png. If DIR is the folder of a study, 'tustin study report DIR'
shows them in its report.

examples:
  tustin bench inference
  tustin bench inference --discretizations zoh,bil --batch-sizes 1,8 --rounds 12
  tustin bench inference --device cuda --compile --json inference.json
  tustin bench inference --out runs/study
  tustin bench inference --markdown docs/performance.md --plot docs/images/inference.png""",
        {
            "model": "",
            "discretizations": _RULES,
            "batch-sizes": "images per call (default: 1,4,8,16,32; on a GPU up to 512)",
            "compile": "",
            "device": _GPU,
            "threads": "",
            "rounds": _ROUNDS,
        },
        arguments.inference_options,
        "inference.run",
        "inference.outcome",
        plot=True,
    ),
    Benchmark(
        "train",
        "time a training step with every rule, compared with zoh, DeiT and the paper",
        """\
Measures images per second and peak memory of a training step (forward, backward, AdamW) with every rule, relative to
zoh. Also shows DeiT and the paper's numbers. The method is that of 'tustin bench inference'.

examples:
  tustin bench train
  tustin bench train --discretizations zoh,bil --batch-sizes 4,16 --threads 1
  tustin bench train --markdown docs/performance.md""",
        {
            "model": "",
            "discretizations": _RULES,
            "batch-sizes": "images per step (default: 8; on a GPU 64)",
            "device": _GPU,
            "threads": "",
            "rounds": _ROUNDS,
        },
        partial(arguments.inference_options, usual=arguments.TRAINING_BATCH),
        "inference.run_training",
        "inference.outcome",
    ),
    Benchmark(
        "resolution",
        "measure time and memory for larger and larger images, compared with DeiT",
        """\
Measures time and memory for one image of growing size, with Vision Mamba and DeiT. The cost of attention grows with the
square of the number of tokens, the cost of the scan linearly. The result is the size from which Vision Mamba is faster.

examples:
  tustin bench resolution
  tustin bench resolution --discretization zoh --sizes 224,512,1024 --rounds 10
  tustin bench resolution --markdown docs/performance.md --plot docs/images/resolution.png""",
        {
            "model": "",
            "discretization": "",
            "sizes": "sides in pixels (default: 224,384,512,768,1024,1248)",
            "device": _GPU,
            "threads": "",
            "rounds": _ROUNDS,
        },
        partial(arguments.beside_deit, sizes=(224, 384, 512, 768, 1024, 1248)),
        "resolution.run",
        "resolution.outcome",
        plot=True,
    ),
    Benchmark(
        "export",
        "time an exported Vision Mamba in onnxruntime, compared with our own kernels and DeiT",
        """\
Exports ViM-tiny and DeiT-tiny to ONNX, and times both in onnxruntime on the CPU, in turns with ViM-tiny on our own
kernels. The export takes a minute or two. Needs the extra tustin[onnx].

examples:
  tustin bench export
  tustin bench export --discretization zoh --batch-sizes 1 --sizes 224 --rounds 3
  tustin bench export --markdown docs/performance.md""",
        {
            "model": "",
            "discretization": "",
            "batch-sizes": "images per call (default: 1,8)",
            "sizes": "sides in pixels (default: 224,512)",
            "threads": "",
            "rounds": "number of rounds (default: 7)",
        },
        partial(arguments.beside_deit, batch_sizes=(1, 8), sizes=(224, 512), rounds=7),
        "export.run",
        "export.outcome",
    ),
    Benchmark(
        "transformers",
        "time a Hugging Face Mamba on the CPU: transformers' own code, mambapy, and our operators",
        """\
Times prompts, decoding and training steps of a Mamba with the shape of mamba-130m and random weights. Compares
transformers' own code for the CPU, its use_mambapy=True, and the model after tustin.adapt(model), in turns. Lists the
slowest operations. A call that takes more than ten seconds is made only once. docs/adapters.md says how to adapt a
model.

examples:
  tustin bench transformers
  tustin bench transformers --quick --json transformers.json
  tustin bench transformers --lengths 128,512 --threads 2 --rounds 7
  tustin bench transformers --markdown docs/performance.md""",
        {
            "quick": "one or two minutes: one length and fewer rounds",
            "lengths": "prompt lengths, with commas between them (default: 512,2048; quick: 512)",
            "threads": "",
            "rounds": "number of rounds (default: 6; quick: 2)",
        },
        partial(arguments.options, lengths=(512, 2048), rounds=6, quickly={"lengths": (512,), "rounds": 2}),
        "transformers.run",
        "transformers.outcome",
    ),
    Benchmark(
        "mambavision",
        "time MambaVision-T with our mamba_ssm, compared with selective_scan_ref",
        """\
Times the MambaVision-T of PyPI, unchanged, with random weights, on a CPU: inference of 1 and of 8 images, and a
training step of 8. Runs it with our scan and with selective_scan_ref, in turns. Needs 'pip install --no-deps
mambavision einops'.

examples:
  tustin bench mambavision
  tustin bench mambavision --threads 2 --markdown docs/performance.md""",
        {"threads": "", "rounds": "number of rounds (default: 7)"},
        partial(arguments.options, rounds=7),
        "mambavision.run",
        "mambavision.outcome",
    ),
)

COMMAND = Command(
    "bench",
    "measure speed and compare it with other implementations",
    _DETAILS,
    commands={benchmark.name: benchmark.command() for benchmark in _BENCHMARKS},
    takes_rule=True,
)
