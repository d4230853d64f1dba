"""What `tustin predict` tells of an image by a classifier: its likeliest classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..report import terminal
from ..support.pictures import UnreadableError, mode_for, read_image
from . import Wishes

if TYPE_CHECKING:
    from rich.table import Table


def predict(
    model: Any,
    paths: Sequence[Path],
    wishes: Wishes,
    failed: list[dict[str, str]],
    advance: Callable[[int], None],
) -> Iterator[dict[str, Any]]:
    """The `wishes.top` classes of every image that can be read; of the others `failed` gets the name and the reason."""
    if model.num_classes == 0:
        raise ValueError(f"{wishes.checkpoint} has no classification head, so it predicts no classes")
    if wishes.out is not None:
        raise ValueError(f"{wishes.checkpoint} is a classifier, which writes no pictures, so --out has no effect")
    mode = mode_for(model.channels)
    for start in range(0, len(paths), wishes.batch_size):
        group = paths[start : start + wishes.batch_size]
        read = []
        for path in group:
            try:
                read.append((path, model.prepare(read_image(path, mode))))
            except UnreadableError as error:
                failed.append({"image": str(path), "reason": error.reason})
        if read:
            probabilities = model.probabilities([image for _, image in read])
            for (path, _), values in zip(read, probabilities, strict=True):
                best = np.argsort(-values, kind="stable")[: wishes.top]
                told = [
                    {"class": int(i), "name": model.names[i] if model.names else None, "probability": float(values[i])}
                    for i in best
                ]
                yield {"image": str(path), "top": told}
        advance(len(group))


def facts(about: dict[str, Any], results: list[dict[str, Any]], failed: list[dict[str, str]]) -> Any:
    return {**about, "images": results, "failed": failed}


def render(results: list[dict[str, Any]]) -> Table:
    table = terminal.table(["image", "class", "probability"], words=["image", "class"])
    for result in results:
        table.add_section()
        for rank, told in enumerate(result["top"]):
            name = f"class {told['class']}" if told["name"] is None else told["name"]
            table.add_row(result["image"] if rank == 0 else "", name, f"{told['probability']:.1%}")
    return table
