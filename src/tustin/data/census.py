"""What the masks of a folder hold: how many pixels of each value, and whether that fits the names of the classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..support.masks import values_of
from .masks import MaskedImages, read_values

__all__ = ["Census", "census"]

MOST_MASKS = 400
"""That are read; of more, so many at even distances."""
MOST_CLASSES = 40
"""That are listed; of more, the largest."""
MOST_UNLABELLED = 0.5
"""Share of the pixels without a class; more are likely a class."""
MOST_NAMES = 10
"""In a warning."""


@dataclass(frozen=True)
class Census:
    """Pixels by value, of some masks or of all."""

    classes: list[str]
    unlabelled: int
    pixels: dict[int, int]
    read: int
    masks: int

    def share(self, value: int) -> float:
        return self.pixels.get(value, 0) / max(1, sum(self.pixels.values()))

    def values(self) -> list[int]:
        """Of the classes, in their order."""
        return [int(value) for value in values_of(np.arange(len(self.classes)), self.unlabelled)]

    def lines(self) -> Iterator[str]:
        """A line for each class with its value and its share of the pixels, and warnings."""
        of_all = "all" if self.read == self.masks else f"{self.read} of"
        yield f"share of pixels by value in {of_all} {self.masks} training masks:"
        named = dict(zip(self.values(), self.classes, strict=True))
        shown = list(named)
        if len(named) > MOST_CLASSES:
            shown = sorted(sorted(named, key=self.share, reverse=True)[:MOST_CLASSES])
        for value in sorted([*shown, self.unlabelled]):
            name = "(no class: data.unlabelled)" if value == self.unlabelled else named[value]
            yield f"  {value:5} {self.share(value):7.2%}  {name}"
        if len(shown) < len(named):
            yield f"  and {len(named) - len(shown)} classes with fewer pixels"
        yield from self._warnings(named)

    def _warnings(self, named: dict[int, str]) -> Iterator[str]:
        if self.share(self.unlabelled) > MOST_UNLABELLED:
            yield (
                f"WARNING: most pixels have the value {self.unlabelled}, which means no class; if "
                f"{self.unlabelled} is a class, data.unlabelled must be another value"
            )
        if absent := [name for value, name in named.items() if not self.pixels.get(value)]:
            yield f"WARNING: {len(absent)} of {len(named)} classes have no pixel in these masks: {_some(absent)}"
        if foreign := sorted(value for value in self.pixels if value not in named and value != self.unlabelled):
            yield (
                f"WARNING: these masks have values without a class: {_some(list(map(str, foreign)))}; such a mask ends "
                f"the run, or is left out with data.skip_corrupt; is data.unlabelled {self.unlabelled} right?"
            )


def _some(names: list[str]) -> str:
    return ", ".join([*names[:MOST_NAMES], *(["and others"] if len(names) > MOST_NAMES else [])])


def census(images: MaskedImages) -> Census:
    """Of the masks of `images`, or of some if they are many; one that cannot be read is told when it is used."""
    number = min(MOST_MASKS, len(images))
    pixels: dict[int, int] = {}
    read = 0
    for place in range(number):
        _, path = images.pairs[place * len(images) // number]
        try:
            values, counts = np.unique(read_values(path), return_counts=True)
        except ValueError:
            continue
        read += 1
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            pixels[value] = pixels.get(value, 0) + count
    return Census(images.classes, images.unlabelled, pixels, read, len(images))
