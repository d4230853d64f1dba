"""`tustin predict`: what a checkpoint makes of images."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..predict import PREDICTORS, Wishes, find_images, load, predictor
from ..report import terminal
from .arguments import at_least_one, share
from .command import Command
from .output import print_json, print_rich

__all__ = ["COMMAND"]

DETAILS = """\
The output depends on the checkpoint's task. A classifier prints the most likely classes, a segmenter the share of each
class, a detector the objects. The last two also write pictures to --out: NAME-overlay.png and others.

Images are prepared as the checkpoint says: size, crop, mean and standard deviation. Folders are searched with all their
subfolders, in the order of names, for .jpg .jpeg .png .bmp .gif .ppm .pgm .tif .tiff .webp. An image that cannot be
read is reported and skipped; the exit code is then 1.

--json prints {"checkpoint", "discretization", "images", "failed": [{"image", "reason"}]}. The images are
  classifier: [{"image", "top": [{"class", "name", "probability"}]}]; name is null if the checkpoint has no names
  segmenter:  [{"image", "mask", "overlay", "classes": [{"value", "name", "share"}]}]; mask and overlay are paths
For a detector --json prints COCO's results format instead: one list of {"image_id", "category_id", "bbox", "score",
"segmentation"} with every object found, whatever its score.

examples:
  tustin predict photo.jpg --checkpoint runs/finetune-mamba-0
  tustin predict photos/ more.png --checkpoint best.safetensors --top 3 --json > classes.json
  tustin predict photos/ --checkpoint model.onnx
  tustin predict photos/ --task segmentation --checkpoint best.safetensors --out masks
  tustin predict photos/ --task detection --checkpoint best.safetensors --score 0.3 --out objects"""

SECONDS_BEFORE_A_BAR = 2.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("images", metavar="IMAGE", nargs="+", type=Path, help="an image, or a folder of images")
    files = "checkpoint, folder of a run, or .onnx file of 'tustin export'"
    parser.add_argument("--checkpoint", metavar="FILE", type=Path, required=True, help=files)
    parser.add_argument("--task", choices=PREDICTORS, help="fail unless the checkpoint is for this task")
    parser.add_argument("--out", metavar="FOLDER", type=Path, help="folder for pictures (default: predictions)")
    parser.add_argument("--top", metavar="N", type=at_least_one, default=5, help="classes per image (default: 5)")
    parser.add_argument("--score", metavar="S", type=share, default=0.5, help="lowest score to draw (default: 0.5)")
    parser.add_argument("--batch-size", metavar="N", type=at_least_one, default=8, help="images per batch (default: 8)")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")


def run(args: argparse.Namespace) -> None:
    paths = find_images(args.images)
    wishes = Wishes(args.checkpoint, args.out, args.top, args.score, args.batch_size)
    task, discretization, model = load(args.checkpoint, args.task)
    of_task = predictor(task)
    failed: list[dict[str, str]] = []
    done = 0
    with terminal.progress(patience=SECONDS_BEFORE_A_BAR) as progress:

        def advance(images: int) -> None:
            nonlocal done
            done += images
            progress("images", done, len(paths))

        results = list(of_task.predict(model, paths, wishes, failed, advance))
    if args.json:
        about = {"checkpoint": str(args.checkpoint), "discretization": discretization}
        print_json(of_task.facts(about, results, failed))
    elif results:
        print_rich(of_task.render(results))
    for bad in failed:
        print(f"tustin: skipped {bad['image']}: {bad['reason']}", file=sys.stderr)
    if failed:
        raise RuntimeError(f"{len(failed)} of {len(paths)} images could not be read")


COMMAND = Command(
    "predict", "apply a model to images: find classes, masks or objects", DETAILS, configure, run, takes_rule=True
)
