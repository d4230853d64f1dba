"""`tustin predict`: the classes of images, by a checkpoint."""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .info import at_least_one

__all__ = ["DETAILS", "configure", "find_images", "predict", "run"]

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp")
"""What counts as an image in a folder; a file that is named itself may end in anything."""

DETAILS = """\
Images are prepared as the checkpoint says: size, crop, mean and deviation. Folders are searched to any depth, in the
order of names, for files that end in .jpg .jpeg .png .bmp .gif .ppm .pgm .tif .tiff .webp. An image that cannot be read
is named and skipped; at the end the exit code is then 1.

--json prints {"checkpoint", "discretization", "images": [{"image", "top": [{"class", "name", "probability"}]}],
"failed": [{"image", "reason"}]}; a name is null where the checkpoint has none.

examples:
  tustin predict photo.jpg --checkpoint best.safetensors
  tustin predict photos/ more.png --checkpoint best.safetensors --top 3 --json > classes.json"""

_SECONDS_BEFORE_A_BAR = 2.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("images", metavar="IMAGE", nargs="+", type=Path, help="an image, or a folder of images")
    parser.add_argument("--checkpoint", metavar="FILE", type=Path, required=True, help="a file of tustin.save")
    parser.add_argument("--top", metavar="N", type=at_least_one, default=5, help="classes per image (default: 5)")
    parser.add_argument("--batch-size", metavar="N", type=at_least_one, default=8, help="images at once (default: 8)")
    parser.add_argument("--json", action="store_true", help="print the same as JSON")


def run(args: argparse.Namespace) -> None:
    from .cli import print_json, print_rich
    from .models import load

    paths = find_images(args.images)
    model = load(args.checkpoint)
    if model.num_classes == 0:
        raise ValueError(f"{args.checkpoint} has no head, so it tells no classes")
    failed: list[dict[str, str]] = []
    with _progress(len(paths)) as advance:
        results = list(predict(model, paths, args.top, args.batch_size, failed, advance))
    if args.json:
        about = {"checkpoint": str(args.checkpoint), "discretization": model.config["discretization"]}
        print_json({**about, "images": results, "failed": failed})
    elif results:
        print_rich(lambda width: [_render(results)])
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


def predict(
    model: Any,
    paths: Sequence[Path],
    top: int,
    batch_size: int,
    failed: list[dict[str, str]],
    advance: Callable[[int], None] = lambda done: None,
) -> Iterator[dict[str, Any]]:
    """The `top` classes of every image that can be read; of the others `failed` gets the name and the reason."""
    import torch
    from timm.data import create_transform, resolve_model_data_config

    data = resolve_model_data_config(model)
    mode = {1: "L", 3: "RGB"}.get(data["input_size"][0])
    if mode is None:
        raise ValueError(f"images have 1 or 3 channels, the model expects {data['input_size'][0]}")
    prepare = create_transform(**data)
    names = model.pretrained_cfg.get("label_names")
    for start in range(0, len(paths), batch_size):
        group = paths[start : start + batch_size]
        read = []
        for path in group:
            try:
                read.append((path, prepare(_open(path, mode))))
            except _UnreadableError as error:
                failed.append({"image": str(path), "reason": str(error)})
        if read:
            with torch.inference_mode():
                logits = model(torch.stack([image for _, image in read]).to(model.pos_embed.dtype))
            best = logits.float().softmax(-1).topk(min(top, model.num_classes))
            for (path, _), values, classes in zip(read, best.values.tolist(), best.indices.tolist(), strict=True):
                told = [
                    {"class": i, "name": names[i] if names else None, "probability": value}
                    for value, i in zip(values, classes, strict=True)
                ]
                yield {"image": str(path), "top": told}
        advance(len(group))


def _open(path: Path, mode: str) -> Any:
    """The image as training reads it: palettes resolved, transparency dropped."""
    from PIL import Image

    try:
        with warnings.catch_warnings(action="ignore"), Image.open(path) as file:  # odd metadata is no concern
            return file.convert(mode)
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        raise _UnreadableError(_reason(error)) from error


class _UnreadableError(Exception):
    """Why a file is not an image that can be read."""


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = " ".join(str(error).split()) or type(error).__name__
    return "not an image" if "cannot identify image file" in text else text


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


def _render(results: list[dict[str, Any]]) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    table.add_column("image", overflow="fold")
    table.add_column("class")
    table.add_column("probability", justify="right", no_wrap=True)
    for result in results:
        table.add_section()
        for rank, told in enumerate(result["top"]):
            name = f"class {told['class']}" if told["name"] is None else told["name"]
            table.add_row(result["image"] if rank == 0 else "", name, f"{told['probability']:.1%}")
    return table
