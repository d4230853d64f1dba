"""Image folders and CIFAR: file names or arrays on one side, batches of augmented tensors on the other."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias
from urllib.error import URLError

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ..support.pictures import mode_for, read_image
from .batches import Batch, Key
from .decoded import Pixels, decode, mapped
from .plain import Plain
from .samples import read_samples

Transform: TypeAlias = Callable[[Image.Image], Tensor]

IN_MEMORY_BYTES = 100 * 2**20
"""Sets whose files are smaller are decoded once and kept."""


@dataclass(frozen=True)
class Images:
    """Labelled images, in memory or in files.

    Batches have "images" (batch, channels, height, width), "labels" (batch) and "skipped", the number of images that
    could not be read. In training another image of the batch replaces an unreadable one, so that the batch keeps its
    size; in evaluation it is left out.
    """

    sources: Sequence[Path | Pixels]
    labels: Sequence[int]
    classes: list[str]
    training: bool
    transform: Transform | Plain | None = None
    mode: str = "RGB"
    skip_corrupt: bool = False

    def __len__(self) -> int:
        return len(self.labels)

    def __getitems__(self, keys: list[Key]) -> Batch:
        try:
            samples, skipped = read_samples(keys, self._sample, self.training, self.skip_corrupt)
        except ValueError as error:
            return {"error": str(error)}
        if not samples:
            return {"error": f"none of the {len(keys)} images of a batch can be read, e.g. {self.sources[keys[0][0]]}"}
        images, labels, seeds = zip(*samples, strict=True)
        if isinstance(self.transform, Plain):
            ready = self.transform.batch(torch.from_numpy(np.stack(images)), torch.tensor(seeds))
        else:
            ready = torch.stack(images)
        return {"images": ready, "labels": torch.tensor(labels), "skipped": skipped}

    def _sample(self, index: int, seed: int) -> tuple[Tensor | Pixels, int, int]:
        assert self.transform is not None, "prepared() comes first"
        return self._image(index, seed), self.labels[index], seed

    def _image(self, index: int, seed: int) -> Tensor | Pixels:
        """Ready for the model, or for the transform of its batch."""
        if isinstance(self.transform, Plain):
            source = self.sources[index]
            if not isinstance(source, Path) and self.transform.fits(source, self.mode):
                return source
            return self.transform.array(self._open(index))
        assert self.transform is not None
        image = self._open(index)
        seed_augmentation(seed)
        return self.transform(image)

    def prepared(
        self,
        transform: Transform | Plain,
        channels: int,
        skip_corrupt: bool,
        in_memory: bool | None,
        cache: str | None = None,
    ) -> Images:
        """The same images, prepared for a model with this number of channels; `cache` is a folder for decoded ones."""
        ready = replace(self, transform=transform, mode=mode_for(channels), skip_corrupt=skip_corrupt)
        return ready._decoded(cache) if in_memory or (in_memory is None and self._is_small()) else ready

    def _is_small(self) -> bool:
        total = 0
        for source in self.sources:
            total += source.stat().st_size if isinstance(source, Path) else 0
            if total > IN_MEMORY_BYTES:
                return False
        return True

    def _decoded(self, cache: str | None) -> Images:
        """With every readable image as an array."""
        paths = [source for source in self.sources if isinstance(source, Path)]
        if not paths:
            return self
        arrays = iter(mapped(paths, self.mode, cache) if cache else decode(paths, self.mode))
        return replace(self, sources=[next(arrays) if isinstance(s, Path) else s for s in self.sources])

    def _open(self, index: int) -> Image.Image:
        source = self.sources[index]
        if not isinstance(source, Path):
            return Image.fromarray(source).convert(self.mode)
        return read_image(source, self.mode)


def folder(path: str | Path, training: bool) -> Images:
    """The images of `path`/train or `path`/val, with one folder per class, as in ImageNet-1k."""
    from torchvision.datasets.folder import IMG_EXTENSIONS, make_dataset

    root = Path(path)
    if not root.is_dir():
        raise FileNotFoundError(f"there is no folder {str(path)!r}; data.path must name one with train/ and val/")
    classes = _classes(root / "train")
    part = root / ("train" if training else "val")
    different = sorted(set(classes) ^ set(_classes(part)))
    if different:
        raise ValueError(
            f"train/ and val/ of {str(path)!r} must have the same classes; {different[0]!r} is in only one of them"
        )
    numbers = {name: number for number, name in enumerate(classes)}
    found = make_dataset(str(part), numbers, extensions=IMG_EXTENSIONS, allow_empty=True)
    if not found:
        raise FileNotFoundError(f"{str(part)!r} has no images ({', '.join(IMG_EXTENSIONS)})")
    return Images([Path(name) for name, _ in found], [label for _, label in found], classes, training)


def _classes(part: Path) -> list[str]:
    names = sorted(entry.name for entry in part.iterdir() if entry.is_dir()) if part.is_dir() else []
    if not names:
        raise FileNotFoundError(f"there is no folder {str(part)!r} with one subfolder per class")
    return names


def cifar(name: str, path: str | Path, training: bool, download: bool) -> Images:
    """CIFAR-10 or CIFAR-100, as torchvision stores it in `path`; downloaded if it is missing and `download` is set."""
    from torchvision import datasets

    kind = {"cifar10": datasets.CIFAR10, "cifar100": datasets.CIFAR100}[name]
    try:
        data = kind(str(path), train=training, download=download)
    except (URLError, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", error)
        raise RuntimeError(
            f"{name} is not in {str(path)!r} and cannot be downloaded ({reason}); on a machine with internet run the "
            f"same command, or torchvision.datasets.{kind.__name__}(PATH, download=True), and copy the folder"
        ) from error
    except RuntimeError as error:
        hint = "its files are damaged" if download else "with --data.download true 'tustin train' fetches it"
        raise RuntimeError(f"{name} is not in {str(path)!r}; {hint} ({error})") from error
    return Images(list(data.data), list(data.targets), list(data.classes), training)


def seed_augmentation(seed: int) -> None:
    """Everything that timm's and torchvision's augmentation draws from."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002, the generator that timm reads
    torch.default_generator.manual_seed(seed)
