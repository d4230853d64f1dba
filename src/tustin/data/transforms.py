"""What is done to an image before the model sees it: timm's augmentation, or its way to evaluate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from PIL import Image, ImageOps
from timm.data import create_transform
from timm.data.auto_augment import AugmentOp
from torchvision import transforms as T

from .images import Transform
from .plain import Plain


def for_training(
    facts: dict[str, Any], crop: str, flip: float, color_jitter: float, auto: str | None, erase: float
) -> Transform | Plain:
    """`facts` are the model's: input_size, mean, std and interpolation, as timm resolves them."""
    size = facts["input_size"][-2:]
    if crop != "resized" and not (color_jitter or auto or erase):
        margin = (size[0] // 8, size[1] // 8) if crop == "padded" else (0, 0)
        resize = T.Resize(size) if crop == "padded" else T.Compose([T.Resize(min(size)), T.CenterCrop(size)])
        return Plain(size, resize, True, facts["mean"], facts["std"], margin, flip)
    transform: Any = create_transform(
        facts["input_size"],
        is_training=True,
        hflip=flip,
        color_jitter=color_jitter,
        auto_augment=auto,
        re_prob=erase,
        re_mode="pixel",
        interpolation=facts["interpolation"],
        mean=facts["mean"],
        std=facts["std"],
    )
    for operation in _operations(transform.transforms):
        if operation.name.startswith("Posterize"):
            operation.aug_fn = _posterize
    if crop == "padded":  # instead of a crop of random size, timm's first step
        transform.transforms[:1] = [T.Resize(size), T.RandomCrop(size, padding=[side // 8 for side in reversed(size)])]
    elif crop == "none":
        transform.transforms[:1] = [T.Resize(min(size)), T.CenterCrop(size)]
    prepare: Transform = transform
    return prepare


def for_evaluation(facts: dict[str, Any]) -> Transform:
    chosen = {name: facts[name] for name in ("input_size", "interpolation", "mean", "std", "crop_pct", "crop_mode")}
    transform: Transform = create_transform(**chosen)
    return transform


def for_evaluation_in_batches(facts: dict[str, Any]) -> Plain:
    """The same, in two steps."""
    whole: Any = for_evaluation(facts)
    resize = T.Compose(whole.transforms[:-2])  # the others make a tensor and normalise it
    return Plain(facts["input_size"][-2:], resize, facts["crop_pct"] == 1, facts["mean"], facts["std"])


def _operations(steps: Any) -> Iterator[AugmentOp]:
    """Every operation of timm's automatic augmentation, whichever of its policies holds them."""
    for step in steps:
        if isinstance(step, AugmentOp):
            yield step
        else:
            inside = step if isinstance(step, list) else getattr(step, "ops", getattr(step, "policy", []))
            yield from _operations(inside)


def _posterize(image: Image.Image, bits: int, **_: Any) -> Image.Image:
    """timm's, which asks for no bits at all at its strongest: Pillow 13 refuses what used to give a black image."""
    return ImageOps.posterize(image, bits) if bits else Image.new(image.mode, image.size)
