"""What `tustin predict` draws of an image by a segmenter: the class of every pixel, as a mask and over the image.

NAME-mask.png has the same values as the masks that the model was trained on, in a palette of colours. NAME-overlay.png
is the image under these colours, with the names of its largest classes beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ..report import terminal
from ..support.masks import Pixels, values_of
from ..support.pictures import UnreadableError, mode_for, read_image
from . import Wishes, names_for
from .drawing import colours, write_png

if TYPE_CHECKING:
    from rich.table import Table

ENDINGS = {"mask": "-mask.png", "overlay": "-overlay.png"}
OPACITY = 0.55
"""Of the colours over the image."""


def predict(
    model: Any,
    paths: Sequence[Path],
    wishes: Wishes,
    failed: list[dict[str, str]],
    advance: Callable[[int], None],
) -> Iterator[dict[str, Any]]:
    """Two pictures of every image that can be read, and its `wishes.top` classes; of the others `failed` gets why."""
    out = wishes.out or Path("predictions")
    out.mkdir(parents=True, exist_ok=True)
    mode, unlabelled = mode_for(model.channels), model.unlabelled
    names = model.names or [f"class {i}" for i in range(model.num_classes)]
    for path, name in zip(paths, names_for(paths, out, list(ENDINGS.values())), strict=True):
        try:
            image = read_image(path, mode)
        except UnreadableError as error:
            failed.append({"image": str(path), "reason": error.reason})
            continue
        values = values_of(model.segment(image), unlabelled)
        shares = _shares(values, names, unlabelled)[: wishes.top]
        files = {kind: out / f"{name}{ending}" for kind, ending in ENDINGS.items()}
        write_png(files["mask"], as_picture(values, unlabelled))
        write_png(files["overlay"], overlay(image, values, shares, unlabelled))
        yield {"image": str(path), **{kind: str(file) for kind, file in files.items()}, "classes": shares}
        advance(1)


def facts(about: dict[str, Any], results: list[dict[str, Any]], failed: list[dict[str, str]]) -> Any:
    return {**about, "images": results, "failed": failed}


def render(results: list[dict[str, Any]]) -> Table:
    table = terminal.table(["image", "class", "share", "overlay"], words=["image", "class", "overlay"])
    for result in results:
        table.add_section()
        for rank, told in enumerate(result["classes"]):
            image, picture = (result["image"], result["overlay"]) if rank == 0 else ("", "")
            table.add_row(image, told["name"], f"{told['share']:.1%}", picture)
    return table


def _shares(values: Pixels, names: Sequence[str], unlabelled: int) -> list[dict[str, Any]]:
    """The classes in the image and how much of it they have, the largest first."""
    found, counts = np.unique(values, return_counts=True)
    told = [
        {"value": int(value), "name": names[int(value) - (value > unlabelled)], "share": int(count) / values.size}
        for value, count in zip(found, counts, strict=True)
    ]
    return sorted(told, key=lambda one: -one["share"])


def as_picture(values: Pixels, unlabelled: int = 0) -> Image.Image:
    """The values of a mask: in a palette where they fit into one, as 16-bit numbers otherwise. No class is black."""
    if values.max() > 255:
        return Image.fromarray(values.astype(np.uint16))
    picture = Image.fromarray(values.astype(np.uint8))
    picture.putpalette(colours(256, unlabelled).tobytes())
    return picture


def overlay(image: Image.Image, values: Pixels, shares: Sequence[dict[str, Any]], unlabelled: int = 0) -> Image.Image:
    """The image under the colours of its classes, and the names of the largest on the right."""
    palette = colours(int(values.max()) + 1, unlabelled)
    tinted = Image.blend(image.convert("RGB"), Image.fromarray(palette[values]), OPACITY)
    size = max(11, image.height // 30)
    font = ImageFont.load_default(size)
    lines = [f"{one['name']}  {one['share']:.1%}" for one in shares]
    width = 3 * size + int(max(font.getbbox(line)[2] for line in lines))
    picture = Image.new("RGB", (image.width + width, image.height), "white")
    picture.paste(tinted, (0, 0))
    draw = ImageDraw.Draw(picture)
    for row, (line, one) in enumerate(zip(lines, shares, strict=True)):
        left, top = image.width + size // 2, size // 2 + row * 3 * size // 2
        draw.rectangle((left, top, left + size, top + size), fill=tuple(palette[one["value"]].tolist()))
        draw.text((left + 3 * size // 2, top), line, fill="black", font=font)
    return picture
