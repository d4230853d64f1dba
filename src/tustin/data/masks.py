"""Images with a mask each, which has the number of a class at every pixel.

    images/training/NAME.jpg     annotations/training/NAME.png
    images/validation/NAME.jpg   annotations/validation/NAME.png
    classes.txt                  the name of a class on each line

One value means that a pixel has no class, by default 0; the other values are the classes in the order of their names.
So with 0 the first class is 1, and with 255 it is 0. ADE20K is such a folder, see `ade20k`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ..support.masks import Pixels
from ..support.pictures import UnreadableError, mode_for, read_image
from .batches import Batch, Key
from .images import IN_MEMORY_BYTES, seed_augmentation
from .samples import read_samples

__all__ = ["UNLABELLED", "MaskedImages", "masked_folder", "read_values"]

UNLABELLED = -1
"""What a pixel without a class has in a batch."""
MOST_CLASSES = 2**15 - 1
"""What fits into the 16 bits in which masks are kept."""
INDEX_MODES = ("1", "L", "P", "I", "I;16")
"""Modes of image files with one number per pixel."""

Transform: TypeAlias = Callable[[Image.Image, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class MaskedImages:
    """Images and their masks.

    Batches have "images", "masks" of classes, and "skipped", the number of pairs that could not be read. In training
    these are tensors (batch, channels, side, side) and (batch, side, side). In evaluation they are lists: images as the
    transform resizes them, and masks as they are in their files, whatever their sizes.
    """

    pairs: Sequence[tuple[Path, Path]]
    classes: list[str]
    training: bool
    unlabelled: int = 0
    transform: Transform | None = None
    mode: str = "RGB"
    skip_corrupt: bool = False
    kept: tuple[tuple[Pixels, Pixels] | None, ...] = ()
    """Decoded pairs in memory; None for a pair that could not be read, which is reported when it is used."""

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitems__(self, keys: list[Key]) -> Batch:
        try:
            samples, skipped = read_samples(keys, self._sample, self.training, self.skip_corrupt)
        except ValueError as error:
            return {"error": str(error)}
        images, masks = [image for image, _ in samples], [mask for _, mask in samples]
        if not self.training:
            return {"images": images, "masks": masks, "skipped": skipped}
        return {"images": torch.stack(images), "masks": torch.stack(masks), "skipped": skipped}

    def prepared(
        self, transform: Transform, channels: int, skip_corrupt: bool = False, in_memory: bool | None = None
    ) -> MaskedImages:
        """The same images, prepared for a model with this number of channels."""
        ready = replace(self, transform=transform, mode=mode_for(channels), skip_corrupt=skip_corrupt)
        if in_memory or (in_memory is None and self._is_small()):
            return replace(ready, kept=tuple(ready._read_or_none(index) for index in range(len(self))))
        return ready

    def _sample(self, index: int, seed: int) -> tuple[Tensor, Tensor]:
        assert self.transform is not None, "prepared() comes first"
        image, mask = (self.kept and self.kept[index]) or self._read(index)
        seed_augmentation(seed)
        return self.transform(Image.fromarray(image), torch.from_numpy(mask.astype(np.int64)))

    def _read(self, index: int) -> tuple[Pixels, Pixels]:
        image_path, mask_path = self.pairs[index]
        image = read_image(image_path, self.mode)
        mask = _read_classes(mask_path, self.unlabelled, len(self.classes))
        if mask.shape != (image.height, image.width):
            sizes = f"{mask.shape[1]} x {mask.shape[0]}", f"{image.width} x {image.height}"
            raise ValueError(
                f"the mask {str(mask_path)!r} is {sizes[0]}, but its image {str(image_path)!r} is {sizes[1]}"
            )
        return np.asarray(image), mask

    def _read_or_none(self, index: int) -> tuple[Pixels, Pixels] | None:
        try:
            return self._read(index)
        except ValueError:
            return None

    def _is_small(self) -> bool:
        total = 0
        for image, _ in self.pairs:
            total += image.stat().st_size
            if total > IN_MEMORY_BYTES:
                return False
        return True


def masked_folder(
    path: str | Path, training: bool, classes: Sequence[str] | None = None, unlabelled: int = 0
) -> MaskedImages:
    """The images and masks of a folder; `classes`, or else the folder's classes.txt, names the classes.

    An image is at images/training/NAME.jpg and its mask at annotations/training/NAME.png; `validation` likewise.
    """
    from torchvision.datasets.folder import IMG_EXTENSIONS

    root, part = Path(path), "training" if training else "validation"
    images, masks = root / "images" / part, root / "annotations" / part
    for needed in (images, masks):
        if not needed.is_dir():
            raise FileNotFoundError(
                f"there is no folder {str(needed)!r}; data.path must name one with images/ and annotations/, each with "
                "training/ and validation/"
            )
    names = list(classes) if classes is not None else _class_names(root / "classes.txt")
    found = sorted(file for file in images.iterdir() if file.suffix.lower() in IMG_EXTENSIONS)
    if not found:
        raise FileNotFoundError(f"{str(images)!r} has no images ({', '.join(IMG_EXTENSIONS)})")
    pairs = [(image, masks / f"{image.stem}.png") for image in found]
    for image, mask in pairs:
        if not mask.is_file():
            raise FileNotFoundError(f"the image {str(image)!r} has no mask {str(mask)!r}")
    return MaskedImages(pairs, names, training, unlabelled)


def _class_names(file: Path) -> list[str]:
    if not file.is_file():
        raise FileNotFoundError(
            f"there is no {str(file)!r}, which must name the classes of the masks, one on each line"
        )
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{str(file)!r} is not text in UTF-8: {error}") from error
    names = [line.strip() for line in lines if line.strip()]
    if not names:
        raise ValueError(f"{str(file)!r} names no class")
    if len(names) > MOST_CLASSES:
        raise ValueError(f"{str(file)!r} names {len(names)} classes, but a mask can have at most {MOST_CLASSES}")
    for number, name in enumerate(names, start=1):
        if not name.isprintable():
            raise ValueError(f"{str(file)!r} has a class, number {number}, whose name cannot be printed: {name!r}")
        if names.index(name) + 1 != number:
            raise ValueError(f"{str(file)!r} names the class {name!r} twice")
    return names


def read_values(path: Path) -> Pixels:
    """The number that a mask has at every pixel."""
    try:
        file = read_image(path)
    except UnreadableError as error:
        raise ValueError(f"cannot read the mask {str(path)!r}: {error.reason}") from error
    if file.mode not in INDEX_MODES:
        raise ValueError(f"the mask {str(path)!r} has colours ({file.mode}) instead of one number per pixel")
    return np.asarray(file).astype(np.int32)


def _read_classes(path: Path, unlabelled: int, num_classes: int) -> Pixels:
    """The class of every pixel, `UNLABELLED` where it has none."""
    values = read_values(path)
    classes = np.where(values == unlabelled, UNLABELLED, values - (values > unlabelled))
    wrong = values[(classes >= num_classes) | (values < 0)]
    if wrong.size:
        raise ValueError(
            f"the mask {str(path)!r} has the value {int(wrong[0])}, which is neither one of the {num_classes} classes "
            f"nor {unlabelled}, which means no class"
        )
    return classes.astype(np.int16)
