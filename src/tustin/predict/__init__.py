"""`tustin predict`: what a checkpoint makes of images, whatever its task."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import chain, count
from pathlib import Path

from ..cli.info import at_least_one
from ..support.ranges import Range

__all__ = ["DETAILS", "configure", "find_images", "names_for", "run"]

PREDICTORS = {"classification": "classes", "segmentation": "masks", "detection": "boxes"}
"""The module of each task: `predict` makes the results, `render` a table of them, `facts` what --json prints."""

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp")
"""What counts as an image in a folder; a file that is named itself may end in anything."""

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
  tustin predict photo.jpg --checkpoint best.safetensors
  tustin predict photos/ more.png --checkpoint best.safetensors --top 3 --json > classes.json
  tustin predict photos/ --task segmentation --checkpoint best.safetensors --out masks
  tustin predict photos/ --task detection --checkpoint best.safetensors --score 0.3 --out objects"""

_SECONDS_BEFORE_A_BAR = 2.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("images", metavar="IMAGE", nargs="+", type=Path, help="an image, or a folder of images")
    parser.add_argument("--checkpoint", metavar="FILE", type=Path, required=True, help="a file of tustin.save")
    parser.add_argument("--task", choices=PREDICTORS, help="insist on this task; by default the checkpoint's")
    parser.add_argument("--out", metavar="FOLDER", type=Path, help="where pictures go (default: predictions)")
    parser.add_argument("--top", metavar="N", type=at_least_one, default=5, help="classes per image (default: 5)")
    parser.add_argument("--score", metavar="S", type=_share, default=0.5, help="least score to draw (default: 0.5)")
    parser.add_argument("--batch-size", metavar="N", type=at_least_one, default=8, help="images at once (default: 8)")
    parser.add_argument("--json", action="store_true", help="print the same as JSON")


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if value not in Range(0, 1):
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 1, got {text!r}")
    return value


def run(args: argparse.Namespace) -> None:
    from ..cli import print_json, print_rich
    from ..models import describe, load

    paths = find_images(args.images)
    told = describe(args.checkpoint)
    task = told["task"]
    if args.task not in (None, task):
        raise ValueError(f"{args.checkpoint} is a model for {task}, not for {args.task}")
    predictor = import_module(f".{PREDICTORS[task]}", __package__)
    model = load(args.checkpoint)
    failed: list[dict[str, str]] = []
    with _progress(len(paths)) as advance:
        results = list(predictor.predict(model, paths, args, failed, advance))
    if args.json:
        about = {"checkpoint": str(args.checkpoint), "discretization": told["discretization"]}
        print_json(predictor.facts(about, results, failed))
    elif results:
        print_rich(lambda width: [predictor.render(results)])
    for bad in failed:
        print(f"tustin: skipped {bad['image']}: {bad['reason']}", file=sys.stderr)
    if failed:
        raise RuntimeError(f"{len(failed)} of {len(paths)} images could not be read")


def find_images(given: Sequence[Path]) -> list[Path]:
    """The files among `given`, and the images in its folders."""
    found = []
    for path in given:
        if path.is_dir():
            inside = sorted(file for file in path.rglob("*") if file.suffix.lower() in ENDINGS and file.is_file())
            if not inside:
                raise ValueError(f"there is no image in the folder {path}: none ends in {' '.join(ENDINGS)}")
            found += inside
        else:
            found.append(path)
    return found


def names_for(paths: Sequence[Path], out: Path, endings: Sequence[str]) -> list[str]:
    """A name for what is written into `out` about each image, with each of `endings`.

    It is the image's own without its ending, and has a number where several share one. No two files are the same, also
    where a file system does not tell capital letters from small ones, and none is an image that is read.
    """
    stems = Counter(path.stem.casefold() for path in paths)
    read = {path.resolve() for path in paths}
    names: list[str] = []
    taken: set[str] = set()
    for path in paths:
        own = [path.stem] if stems[path.stem.casefold()] == 1 else []
        numbered = (f"{path.stem}-{number}" for number in count(1))
        for name in chain(own, (name for name in numbered if name.casefold() not in stems)):
            overwrites = any((out / f"{name}{ending}").resolve() in read for ending in endings)
            if name.casefold() not in taken and not overwrites:
                break
        taken.add(name.casefold())
        names.append(name)
    return names


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, once it has taken two seconds."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    start = time.monotonic()
    progress = Progress(console=Console(stderr=True), transient=True)
    task = progress.add_task("images", total=total)

    def advance(done: int) -> None:
        progress.advance(task, done)
        if time.monotonic() - start > _SECONDS_BEFORE_A_BAR and not progress.live.is_started:
            progress.start()

    try:
        yield advance
    finally:
        progress.stop()
