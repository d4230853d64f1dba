"""What `tustin predict` draws of an image by a detector: NAME-objects.png, the image with boxes and masks.

It shows the objects whose score is at least `--score`; the results that `--json` prints have all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor
from torchvision.transforms.v2.functional import pil_to_tensor

from ..data.coco import as_results
from ..report import terminal
from ..support.pictures import UnreadableError, mode_for, read_image
from . import Wishes, names_for
from .drawing import colours, write_png

if TYPE_CHECKING:
    from rich.table import Table

ENDING = "-objects.png"
OPACITY = 0.5
"""Of the masks over the image."""


def predict(
    model: Any,
    paths: Sequence[Path],
    wishes: Wishes,
    failed: list[dict[str, str]],
    advance: Callable[[int], None],
) -> Iterator[dict[str, Any]]:
    """A picture of every image that can be read, and its objects; of the others `failed` gets why."""
    out = wishes.out or Path("predictions")
    out.mkdir(parents=True, exist_ok=True)
    names = model.pretrained_cfg.get("label_names") or [f"class {i}" for i in range(model.num_classes)]
    mode = mode_for(model.vim.config["in_chans"])
    for path, name in zip(paths, names_for(paths, out, [ENDING]), strict=True):
        try:
            image = read_image(path, mode)
        except UnreadableError as error:
            failed.append({"image": str(path), "reason": error.reason})
            continue
        pixels = pil_to_tensor(image)
        with torch.inference_mode():
            found = model([pixels / 255])[0]
        shown = {key: value[found["scores"] >= wishes.score] for key, value in found.items()}
        labels = [names[label - 1] for label in shown["labels"].tolist()]
        picture = out / f"{name}{ENDING}"
        write_png(picture, draw(image.convert("RGB"), shown, labels))
        yield {
            "image": str(path),
            "picture": str(picture),
            "objects": [
                {"name": label, "score": score, "box": box}
                for label, score, box in zip(labels, shown["scores"].tolist(), shown["boxes"].tolist(), strict=True)
            ],
            "results": as_results(found, _image_id(path), model.config["category_ids"]),
        }
        advance(1)


def facts(about: dict[str, Any], results: list[dict[str, Any]], failed: list[dict[str, str]]) -> Any:
    """COCO's format of results: one list of what was found in all images, and nothing else."""
    return list(chain.from_iterable(result["results"] for result in results))


def render(results: list[dict[str, Any]]) -> Table:
    header = ("image", "object", "score", "left, top, right, bottom", "picture")
    table = terminal.table(header, words=["image", "object", "picture"])
    for result in results:
        table.add_section()
        for rank, one in enumerate(result["objects"] or [None]):
            image, picture = (result["image"], result["picture"]) if rank == 0 else ("", "")
            place = ", ".join(f"{value:.0f}" for value in one["box"]) if one else ""
            table.add_row(image, one["name"] if one else "none", f"{one['score']:.2f}" if one else "", place, picture)
    return table


def draw(image: Image.Image, shown: dict[str, Tensor], names: Sequence[str]) -> Image.Image:
    """The image with the mask, the box, the name and the score of every object, in the colour of its class."""
    palette = [tuple(colour) for colour in colours(int(max(shown["labels"].tolist(), default=0)) + 1).tolist()]
    chosen = [palette[label] for label in shown["labels"].tolist()]
    tinted = np.array(image)
    for mask, colour in reversed(list(zip(shown["masks"][:, 0].numpy() > 0.5, chosen, strict=True))):
        tinted[mask] = colour  # the best on top
    image = Image.blend(image, Image.fromarray(tinted), OPACITY)
    size = max(11, min(image.size) // 30)
    font = ImageFont.load_default(size)
    pen = ImageDraw.Draw(image)
    objects = zip(shown["boxes"].tolist(), shown["scores"].tolist(), names, chosen, strict=True)
    for (left, top, right, bottom), score, name, colour in reversed(list(objects)):
        pen.rectangle((left, top, right, bottom), outline=colour, width=max(1, size // 6))
        text = f"{name} {score:.2f}"
        place = max(0, min(left, image.width - font.getlength(text))), max(0, top - size - 2)
        pen.rectangle(pen.textbbox(place, text, font=font), fill=colour)
        pen.text(place, text, fill=_readable_on(colour), font=font)
    return image


def _readable_on(colour: tuple[int, ...]) -> str:
    red, green, blue = colour
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 128 else "white"


def _image_id(path: Path) -> int | str:
    """The number that COCO's files have for a name, or else the name."""
    return int(path.stem) if path.stem.isdecimal() else path.stem
