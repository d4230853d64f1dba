"""`tustin predict`: what a checkpoint makes of images."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..predict import PREDICTORS, find_images, predictor
from ..report import terminal
from .arguments import at_least_one, share
from .command import Command
from .output import print_json, print_rich

__all__ = ["COMMAND"]

DETAILS = """\
What is told depends on the checkpoint's task: of a classifier the likeliest classes, of a segmenter the share of each
class, of a detector the objects. The last two also write pictures into --out, NAME-overlay.png and others.

Images are prepared as the checkpoint says: size, crop, mean and deviation. Folders are searched to any depth, in the
order of names, for files that end in .jpg .jpeg .png .bmp .gif .ppm .pgm .tif .tiff .webp. An image that cannot be read
is named and skipped; at the end the exit code is then 1.

--json prints {"checkpoint", "discretization", "images", "failed": [{"image", "reason"}]}, where images are
[{"image", "top": [{"class", "name", "probability"}]}] of a classifier, the name null where the checkpoint has none, and
[{"image", "mask", "overlay", "classes": [{"value", "name", "share"}]}] of a segmenter, with the paths of the pictures.
Of a detector it prints COCO's format of results, one list of {"image_id", "category_id", "bbox", "score",
"segmentation"}, with everything that was found, whatever its score.

examples:
  tustin predict photo.jpg --checkpoint runs/finetune-mamba-0
  tustin predict photos/ more.png --checkpoint best.safetensors --top 3 --json > classes.json
  tustin predict photos/ --task segmentation --checkpoint best.safetensors --out masks
  tustin predict photos/ --task detection --checkpoint best.safetensors --score 0.3 --out objects"""

SECONDS_BEFORE_A_BAR = 2.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("images", metavar="IMAGE", nargs="+", type=Path, help="an image, or a folder of images")
    parser.add_argument("--checkpoint", metavar="FILE", type=Path, required=True, help="a checkpoint or a run's folder")
    parser.add_argument("--task", choices=PREDICTORS, help="insist on this task; by default the checkpoint's")
    parser.add_argument("--out", metavar="FOLDER", type=Path, help="where pictures go (default: predictions)")
    parser.add_argument("--top", metavar="N", type=at_least_one, default=5, help="classes per image (default: 5)")
    parser.add_argument("--score", metavar="S", type=share, default=0.5, help="least score to draw (default: 0.5)")
    parser.add_argument("--batch-size", metavar="N", type=at_least_one, default=8, help="images at once (default: 8)")
    parser.add_argument("--json", action="store_true", help="print the same as JSON")


def run(args: argparse.Namespace) -> None:
    from ..models import describe, load

    paths = find_images(args.images)
    told = describe(args.checkpoint)
    task = told["task"]
    if args.task not in (None, task):
        raise ValueError(f"{args.checkpoint} is a model for {task}, not for {args.task}")
    model, of_task = load(args.checkpoint), predictor(task)
    failed: list[dict[str, str]] = []
    done = 0
    with terminal.progress(patience=SECONDS_BEFORE_A_BAR) as progress:

        def advance(images: int) -> None:
            nonlocal done
            done += images
            progress("images", done, len(paths))

        results = list(of_task.predict(model, paths, args, failed, advance))
    if args.json:
        about = {"checkpoint": str(args.checkpoint), "discretization": told["discretization"]}
        print_json(of_task.facts(about, results, failed))
    elif results:
        print_rich(lambda width: [of_task.render(results)])
    for bad in failed:
        print(f"tustin: skipped {bad['image']}: {bad['reason']}", file=sys.stderr)
    if failed:
        raise RuntimeError(f"{len(failed)} of {len(paths)} images could not be read")


COMMAND = Command("predict", "tell what images show", DETAILS, configure, run, takes_rule=True)
