"""`tustin bench inference`, `train` and `resolution`: their arguments, and what they print and write."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..ops.accelerator import GPUS
from ..report import terminal
from . import arguments, files

if TYPE_CHECKING:
    from ..study.tables import Table
    from .inference import Options
    from .measuring import Report

MODEL = "vim_tiny_patch16_224"
BATCH_SIZES = {"cpu": (1, 4, 8, 16, 32), "gpu": (1, 4, 8, 16, 32, 64, 128, 256, 512)}
TRAINING_BATCH = {"cpu": (8,), "gpu": (64,)}

INFERENCE_DETAILS = """\
Latency, throughput and memory of Vision Mamba with every rule, beside DeiT and the reference backend, at each batch
size. Every round lets all have their turn; ratios are formed within a round, and a difference is claimed only where it
is beyond the noise, which is measured, too: everything else is called a tie. Takes up to ten minutes and an otherwise
idle machine. A batch that would not fit into memory ends the growth. docs/performance.md explains the tables.

--out DIR writes inference.json, .md, .tex and .png. If DIR is the folder of a study, 'tustin study report DIR' shows
them in its report.

examples:
  tustin bench inference
  tustin bench inference --discretizations zoh,bil --batch-sizes 1,8 --rounds 12
  tustin bench inference --device cuda --compile --json inference.json
  tustin bench inference --out runs/study
  tustin bench inference --markdown docs/performance.md --plot docs/images/inference.png"""

TRAINING_DETAILS = """\
Images per second and peak memory of a training step (forward, backward, AdamW) with every rule, relative to zoh, beside
DeiT and the costs that the paper reports. Measured and judged as by 'tustin bench inference'.

examples:
  tustin bench train
  tustin bench train --discretizations zoh,bil --batch-sizes 4,16 --threads 1
  tustin bench train --markdown docs/performance.md"""

RESOLUTION_DETAILS = """\
Time and memory of one image as it grows, Vision Mamba beside DeiT: attention grows with the square of the number of
tokens, the scan does not. Says where the lines cross.

examples:
  tustin bench resolution
  tustin bench resolution --discretization zoh --sizes 224,512,1024 --rounds 10
  tustin bench resolution --markdown docs/performance.md --plot docs/images/resolution.png"""


# --- arguments --------------------------------------------------------------------------------------------------------


def configure_inference(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    _add_discretizations(parser)
    _add_batch_sizes(parser, "1,4,8,16,32, on a GPU up to 512")
    parser.add_argument("--compile", action="store_true", help="also measure zoh and DeiT under torch.compile")
    _add_how(parser)
    _add_outputs(parser, files.INFERENCE, picture=True)


def configure_training(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    _add_discretizations(parser)
    _add_batch_sizes(parser, "8, on a GPU 64")
    _add_how(parser)
    _add_outputs(parser, files.TRAINING, picture=False)


def configure_resolution(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    parser.add_argument(
        "--discretization", metavar="NAME", type=arguments.discretization, help="the rule (default: bil)"
    )
    parser.add_argument(
        "--sizes", metavar="A,B", type=arguments.positives, help="sides in pixels (default: 224,384,512,768,1024,1248)"
    )
    _add_how(parser)
    _add_outputs(parser, files.RESOLUTION, picture=True)


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", metavar="NAME", type=arguments.vision_mamba, help=f"default: {MODEL}")


def _add_discretizations(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--discretizations",
        metavar="A,B",
        type=arguments.discretizations,
        help="rules with commas between them; zoh is always measured (default: all, the six of the paper)",
    )


def _add_batch_sizes(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument("--batch-sizes", metavar="A,B", type=arguments.positives, help=f"default: {default}")


def _add_how(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=("auto", "cpu", *GPUS), help="default: auto, a GPU if there is one")
    parser.add_argument("--threads", metavar="T", type=arguments.threads, help="default: as many as torch uses")
    parser.add_argument(
        "--rounds",
        metavar="R",
        type=arguments.positive,
        help="turns of every candidate; with few, nothing is claimed (default: 10 to 24, as many as fit into minutes)",
    )


def _add_outputs(parser: argparse.ArgumentParser, block: files.Block, picture: bool) -> None:
    write = parser.add_argument_group("what is written")
    write.add_argument(
        "--json",
        nargs="?",
        const="-",
        type=arguments.output,
        metavar="FILE",
        help="everything as JSON, into FILE or instead",
    )
    write.add_argument(
        "--markdown", type=arguments.marked(block), metavar="FILE", help="renew the part between the two marks in FILE"
    )
    write.add_argument("--latex", type=arguments.output, metavar="FILE", help="the tables for a paper")
    if picture:
        write.add_argument("--plot", type=arguments.picture, metavar="FILE", help="the picture (.png, .svg or .pdf)")
    write.add_argument("--out", type=arguments.folder, metavar="DIR", help="all of it into this folder")


def device_of(args: argparse.Namespace) -> str:
    """Where to run; RuntimeError if a GPU is asked for that is not there."""
    import torch

    from ..doctor import no_gpu_because

    if args.device in (None, "auto"):
        found = torch.accelerator.current_accelerator(check_available=True)
        return found.type if found and found.type in GPUS else "cpu"
    if args.device != "cpu" and (reason := no_gpu_because(args.device)):
        raise RuntimeError(f"--device {args.device}: {reason}")
    return str(args.device)


def _options(args: argparse.Namespace, training: bool) -> Options:
    import torch

    from .inference import BASELINE, Options

    device = device_of(args)
    default = (TRAINING_BATCH if training else BATCH_SIZES)["cpu" if device == "cpu" else "gpu"]
    return Options(
        model=args.model or MODEL,
        discretizations=tuple(dict.fromkeys((BASELINE, *(args.discretizations or arguments.PAPER_DISCRETIZATIONS)))),
        batch_sizes=tuple(args.batch_sizes or default),
        device=device,
        threads=args.threads or torch.get_num_threads(),
        rounds=args.rounds,
        compile=not training and args.compile,
        training=training,
    )


def command_line(name: str, args: argparse.Namespace) -> str:
    """The command that makes the same run again."""
    words = [f"tustin bench {name}"]
    for option in (
        "model",
        "discretization",
        "discretizations",
        "batch_sizes",
        "sizes",
        "device",
        "threads",
        "rounds",
        "compile",
    ):
        value = getattr(args, option, None)
        if value is None or value is False:
            continue
        words.append(f"--{option.replace('_', '-')}")
        words += [] if value is True else [",".join(map(str, value)) if isinstance(value, list) else str(value)]
    return " ".join(words)


# --- running ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """A result in every form in which it leaves the command."""

    name: str
    command: str
    summary: str
    remarks: Sequence[str]
    tables: Sequence[Table]
    left_out: Sequence[str]
    facts: dict[str, Any]
    draw: Callable[[Path], None] | None = None


def run_inference(args: argparse.Namespace) -> None:
    _run_models(args, "inference")


def run_training(args: argparse.Namespace) -> None:
    _run_models(args, "train")


def _run_models(args: argparse.Namespace, name: str) -> None:
    from . import inference, inference_facts, inference_tables, model_plots, training_tables

    training = name == "train"
    options, command = _options(args, training), command_line(name, args)
    result = _measured(args, lambda report: inference.run(options, command, report))
    tables = (training_tables if training else inference_tables).tables(result)
    outcome = Outcome(
        name=name,
        command=command,
        summary=inference_tables.summary(result),
        remarks=[],
        tables=tables,
        left_out=inference_tables.left_out(result.measured),
        facts=inference_facts.as_facts(result),
        draw=None if training else lambda path: model_plots.save_inference(path, result),
    )
    _write(outcome, files.TRAINING if training else files.INFERENCE, args)


def run_resolution(args: argparse.Namespace) -> None:
    import torch

    from . import inference_tables, model_plots, resolution
    from .models import PEERS

    options = resolution.Options(
        model=args.model or MODEL,
        discretization=args.discretization or "bil",
        sizes=tuple(args.sizes or resolution.SIZES),
        device=device_of(args),
        threads=args.threads or torch.get_num_threads(),
        rounds=args.rounds,
    )
    if options.model not in PEERS:
        raise ValueError(f"--model {options.model}: DeiT has no such size; there are {', '.join(PEERS)}")
    if wrong := [size for size in options.sizes if size % 16]:
        raise ValueError(f"--sizes: {wrong[0]} pixels are no whole number of patches of 16")
    command = command_line("resolution", args)
    result = _measured(args, lambda report: resolution.run(options, command, report))
    outcome = Outcome(
        name="resolution",
        command=command,
        summary=resolution.summary(result),
        remarks=resolution.conclusions(result),
        tables=resolution.tables(result),
        left_out=inference_tables.left_out(result.measured),
        facts=resolution.as_facts(result),
        draw=lambda path: model_plots.save_resolution(path, result),
    )
    _write(outcome, files.RESOLUTION, args)


def _measured(args: argparse.Namespace, measure: Callable[[Report], Any]) -> Any:
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)  # now, and not after minutes of measuring
    with terminal.progress("tustin bench") as show:
        return measure(show)


# --- printing and writing ---------------------------------------------------------------------------------------------


def _write(outcome: Outcome, block: files.Block, args: argparse.Namespace) -> None:
    from ..cli.output import as_json, print_drawn, print_json
    from ..support.files import write_text

    written: list[Path] = []

    def write(path: Path | None, text: str) -> None:
        if path and str(path) != "-":
            write_text(path, text)
            written.append(path)

    def draw(path: Path | None) -> None:
        if path and outcome.draw:
            outcome.draw(path)
            written.append(path)

    facts = as_json(outcome.facts, utf8=True) + "\n"
    picture: Path | None = getattr(args, "plot", None)
    draw(picture)
    write(args.json, facts)
    write(args.latex, as_latex_file(outcome))
    if args.markdown:
        block.replace(args.markdown, as_markdown_block(outcome, _relative(picture, args.markdown), level=3))
        written.append(args.markdown)
    if args.out:
        own = {ending: args.out / f"{outcome.name}.{ending}" for ending in ("json", "md", "tex", "png")}
        draw(own["png"])
        write(own["json"], facts)
        write(own["tex"], as_latex_file(outcome))
        image = own["png"].name if outcome.draw else None
        write(own["md"], f"# tustin bench {outcome.name}\n\n{as_markdown_block(outcome, image, level=2)}")
    if str(args.json) == "-":
        print_json(outcome.facts)
    else:
        print_drawn(lambda console: console.print(*for_terminal(outcome, console.width), sep="\n"))
    for path in written:
        print(f"tustin: wrote {path}", file=sys.stderr)


def _relative(picture: Path | None, page: Path) -> str | None:
    """How the page names the picture."""
    return Path(os.path.relpath(picture.resolve(), page.resolve().parent)).as_posix() if picture else None


def for_terminal(outcome: Outcome, width: int) -> list[Any]:
    """Text and tables for a terminal of this width."""
    from ..study.texts import as_rich

    parts: list[Any] = [outcome.summary, ""]
    for table in outcome.tables:
        parts += [*as_rich(table, width), ""]
    if outcome.left_out:
        parts += ["Not measured", *(f"- {line}" for line in outcome.left_out), ""]
    return [*parts, *outcome.remarks]


def as_markdown_block(outcome: Outcome, picture: str | None, level: int) -> str:
    """Summary, conclusions, picture and tables."""
    from ..study.texts import as_markdown, escape_markdown

    parts = [f"Measured by `{outcome.command}`. {escape_markdown(outcome.summary)}\n"]
    parts += [f"{escape_markdown(' '.join(outcome.remarks))}\n"] if outcome.remarks else []
    parts += [f"![{outcome.name}]({picture})\n"] if picture else []
    parts += [as_markdown(table, level) for table in outcome.tables]
    if outcome.left_out:
        lines = [f"- {escape_markdown(line)}" for line in outcome.left_out]
        parts.append("\n".join([f"{'#' * level} Not measured\n", *lines]) + "\n")
    return "\n".join(parts)


def as_latex_file(outcome: Outcome) -> str:
    """The tables, ready to be included."""
    from ..study.texts import as_latex

    comment = f"% {outcome.command}; \\usepackage{{booktabs}} in the preamble.\n"
    return "\n".join([comment, *(as_latex(table) for table in outcome.tables if table.name != "checks")])
