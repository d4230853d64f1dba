"""`tustin eval`: what a checkpoint reaches on held-out images."""

from __future__ import annotations

import argparse
from pathlib import Path

from .arguments import at_least_one, zero_or_more
from .command import Command
from .output import print_json, print_rich

__all__ = ["COMMAND"]

DETAILS = """\
examples:
  tustin eval runs/digits-bil-0
  tustin eval best.safetensors --data.name folder --data.path photos --json
  tustin eval best.safetensors --stride 2 --delta-scale 0.25 --conv-dilation 2"""

MODEL_ARGUMENTS = ("stride", "delta_scale", "conv_dilation")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", type=Path, help="checkpoint, or folder of a run")
    where = parser.add_argument_group("data", "default: the data that the model was trained on")
    kinds = ("digits", "cifar10", "cifar100", "folder", "ade20k", "masks", "coco")
    which = "dataset (default: the one the model was trained on, or 'folder' if --data.path is given)"
    where.add_argument("--data.name", dest="data_name", choices=kinds, help=which)
    where.add_argument("--data.path", dest="data_path", metavar="FOLDER", help="folder of the dataset")
    where.add_argument(
        "--data.skip_corrupt", dest="skip_corrupt", action="store_true", help="skip images that cannot be read"
    )
    parser.add_argument(
        "--segmentation.window",
        dest="window",
        choices=("whole", "slide"),
        help="whole images or sliding windows (default: as in training)",
    )
    finer = parser.add_argument_group("finer sampling of the images", "default: as in training")
    finer.add_argument(
        "--stride", metavar="N", type=at_least_one, help="pixels between patches; the position embedding is resampled"
    )
    finer.add_argument("--delta-scale", metavar="X", type=float, help="multiply every step of the scan by X")
    finer.add_argument(
        "--conv-dilation", metavar="N", type=at_least_one, help="distance between the convolution's taps, in tokens"
    )
    parser.add_argument(
        "--batch-size", type=at_least_one, help="images per batch (default: 128 for classification, else 8)"
    )
    parser.add_argument("--workers", type=zero_or_more, default=0, help="processes that load images (default: 0)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> None:
    from ..train import display
    from ..train.evaluation import evaluate_checkpoint

    settings = {"segmentation.window": args.window} if args.window else {}
    arguments = {name: value for name in MODEL_ARGUMENTS if (value := getattr(args, name)) is not None}
    result = evaluate_checkpoint(
        args.checkpoint,
        args.data_name,
        args.data_path,
        args.skip_corrupt,
        args.batch_size,
        args.workers,
        settings,
        arguments,
    )
    if args.json:
        print_json(result)
    else:
        metrics = ", ".join(display.metrics_text(result["metrics"]))
        print(f"{result['checkpoint']}, {result['discretization']}: {metrics} ({result['samples']} images)")
        if "box_ap75" in result["metrics"]:
            from ..train import average_precision

            print_rich(average_precision.table(result["metrics"]))
        if "class_iou" in result["metrics"]:
            from ..train.tasks import segmentation

            print_rich(segmentation.iou_table(result["metrics"]["class_iou"]))


COMMAND = Command("eval", "evaluate a checkpoint on held-out images", DETAILS, configure, run, takes_rule=True)
