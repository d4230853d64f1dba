"""`tustin export`: a checkpoint as a file that runs without the model's code."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..report import terminal
from .command import Command
from .output import print_json, print_rich

__all__ = ["COMMAND"]

DETAILS = """\
onnx    one .onnx file of standard operators, for onnxruntime, Triton Inference Server and other ONNX runtimes. All
        rules work, including your own. The metadata hold the rule, the class names and the image preparation.
torch   one .pt2 file for torch.export.load, where tustin is installed.

Exports classifiers and segmenters, for any batch size. A segmenter needs --dynamic-size to read photos of any shape.
The exported model is first run on random images. The file is written only if the results differ from the model's by
at most 1e-4 of the largest result. docs/deployment.md shows how to use the file.

--json prints file, format, nodes, bytes and largest_error (null with --no-check), and for ONNX also opset and blocks.

examples:
  tustin export runs/digits-bil-0 --to onnx --out model.onnx
  tustin export best.safetensors --to onnx --dynamic-size --out model.onnx
  tustin export best.safetensors --to torch --out model.pt2
  tustin predict photos/ --checkpoint model.onnx"""

ENDINGS = {"onnx": ".onnx", "torch": ".pt2"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="RUN_OR_CHECKPOINT", type=Path, help="checkpoint, or folder of a run")
    parser.add_argument("--to", choices=ENDINGS, default="onnx", help="format (default: onnx)")
    parser.add_argument(
        "--out", metavar="FILE", type=Path, help="output file (default: next to the checkpoint, .onnx or .pt2)"
    )
    parser.add_argument("--dynamic-size", action="store_true", help="accept images of any size")
    parser.add_argument("--no-check", action="store_true", help="do not run the exported model before writing the file")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")


def run(args: argparse.Namespace) -> None:
    from ..support.files import writable

    beside = args.checkpoint / "model" if args.checkpoint.is_dir() else args.checkpoint
    out = args.out or beside.with_suffix(ENDINGS[args.to])
    if out.suffix != ENDINGS[args.to]:
        raise ValueError(f"--out {out} must end in {ENDINGS[args.to]}")
    writable(out)
    from ..export import export
    from ..models import describe, load
    from ..train.evaluation import settings_in

    trained_with = settings_in(describe(args.checkpoint))
    model = load(args.checkpoint)
    with terminal.progress(patience=2.0) as progress:
        progress("exporting", 0, 1)
        options = {"dynamic_size": args.dynamic_size, "check": not args.no_check, "trained_with": trained_with}
        facts = export(model, out, args.to, **options)
    if args.json:
        print_json(facts)
    else:
        print_rich(_told(facts))


def _told(facts: dict[str, Any]) -> str:
    size = f"{facts['nodes']} nodes, {facts['bytes'] / 1e6:.1f} MB"
    if facts["format"] == "onnx":
        size = f"opset {facts['opset']}, {size}, {facts['blocks']} calls of one block"
    error = facts["largest_error"]
    checked = "not checked" if error is None else f"differs from the model by at most {error:.1e} of the largest result"
    return f"{facts['file']}: {size}; {checked}"


COMMAND = Command("export", "write a model as ONNX or as a PyTorch program", DETAILS, configure, run, takes_rule=True)
