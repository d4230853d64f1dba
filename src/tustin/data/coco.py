"""COCO: photographs, and the class, the box and the mask of every object in them.

    train2017/ val2017/                            the images
    annotations/instances_{train,val}2017.json     what is in them

A crowd is many objects under one mask. Training leaves out crowds, and images that contain only crowds. In evaluation,
COCO's own code ignores detections inside a crowd.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torchvision import tv_tensors
from torchvision.ops import box_convert, masks_to_boxes
from torchvision.transforms import v2

from ..support.pictures import read_image
from .batches import Batch, Key
from .coco_file import read_annotations
from .images import seed_augmentation
from .rle import check, decode, encode
from .samples import read_samples

__all__ = ["Coco", "as_results", "coco", "large_scale_jitter"]

Target: TypeAlias = dict[str, Tensor]
Jitter: TypeAlias = Callable[[Tensor, Target], tuple[Tensor, Target]]


@dataclass(frozen=True)
class Photo:
    """An image and what is in it, as the file of annotations says."""

    id: int
    path: Path
    height: int
    width: int
    objects: list[dict[str, Any]] = field(default_factory=list)

    def boxes(self) -> Tensor:
        """The boxes of the objects, (n, 4), as left, top, right, bottom."""
        corners = [_corners(one["bbox"], self.height, self.width) for one in self.objects]
        return torch.tensor(corners, dtype=torch.float32).reshape(-1, 4)


@dataclass(frozen=True)
class Coco:
    """Images with boxes and masks of their objects.

    Batches have "images", a list of tensors (3, height, width) from 0 to 1, "targets" and "skipped", the number of
    images that could not be read. In training, a target is a dict of boxes (n, 4) as left, top, right, bottom, labels
    (n) from 1 and masks (n, height, width); n may be 0. In evaluation, images have their own sizes, and a target has
    only the "image_id". An unreadable image is replaced by another image of the batch in training, and left out in
    evaluation.
    """

    photos: list[Photo]
    classes: list[str]
    category_ids: list[int]
    """The id of each class in the file of annotations. Label i, counted from 1, is the i-th class."""
    annotations: dict[str, Any]
    """The content of the file of annotations, for evaluation."""
    training: bool
    skip_corrupt: bool = False
    jitter: Jitter | None = None

    def __len__(self) -> int:
        return len(self.photos)

    def __getitems__(self, keys: list[Key]) -> Batch:
        try:
            samples, skipped = read_samples(keys, self._sample, self.training, self.skip_corrupt)
        except ValueError as error:
            return {"error": str(error)}
        images, targets = [image for image, _ in samples], [target for _, target in samples]
        return {"images": images, "targets": targets, "skipped": skipped}

    def _sample(self, index: int, seed: int) -> tuple[Tensor, dict[str, Any]]:
        photo = self.photos[index]
        picture = read_image(photo.path, "RGB")
        if picture.size != (photo.width, photo.height):
            told = f"{photo.width} x {photo.height}"
            raise ValueError(
                f"{str(photo.path)!r} is {picture.width} x {picture.height}, but its annotations say {told}"
            )
        image = v2.functional.to_image(picture)
        if not self.training:
            return v2.functional.to_dtype(image, scale=True).as_subclass(Tensor), {"image_id": photo.id}
        assert self.jitter is not None
        seed_augmentation(seed)
        return self.jitter(image, self._target(photo))

    def _target(self, photo: Photo) -> Target:
        size = photo.height, photo.width
        labels = [self.category_ids.index(one["category_id"]) + 1 for one in photo.objects]
        masks = [_mask(one, photo) for one in photo.objects]
        return {
            "boxes": tv_tensors.BoundingBoxes(photo.boxes(), format="XYXY", canvas_size=size),
            "labels": torch.tensor(labels, dtype=torch.int64),
            "masks": tv_tensors.Mask(torch.stack(masks) if masks else torch.zeros(0, *size, dtype=torch.uint8)),
        }


def _mask(annotation: dict[str, Any], photo: Photo) -> Tensor:
    try:
        return decode(annotation["segmentation"], photo.height, photo.width)
    except ValueError as error:
        raise ValueError(f"annotation {annotation['id']} of {str(photo.path)!r}: {error}") from error


def coco(path: str | Path, training: bool, skip_corrupt: bool = False) -> Coco:
    """The images of `path`/train2017 or `path`/val2017.

    An invalid object, for example a box without area, is an error that names it; with `skip_corrupt` it is left out.
    """
    part = "train2017" if training else "val2017"
    folder, file = Path(path) / part, Path(path) / "annotations" / f"instances_{part}.json"
    for needed in (folder, file):
        if not needed.exists():
            raise FileNotFoundError(
                f"there is no {str(needed)!r}; data.path must name a folder with train2017/, val2017/ and annotations/"
            )
    content = read_annotations(file)
    categories = sorted(content["categories"], key=lambda category: category["id"])
    photos = {
        image["id"]: Photo(image["id"], folder / image["file_name"], image["height"], image["width"])
        for image in content["images"]
    }
    known = {category["id"] for category in categories}
    crowded: set[int] = set()
    kept: list[dict[str, Any]] = []
    for annotation in content["annotations"]:
        photo = photos.get(annotation["image_id"])
        wrong = _what_is_wrong(annotation, photo, known, check_mask=not training)
        if wrong and not skip_corrupt:
            raise ValueError(
                f"annotation {annotation['id']} in {str(file)!r}: {wrong}; --data.skip_corrupt true leaves it out"
            )
        if wrong or photo is None:
            continue
        kept.append(annotation)
        if annotation.get("iscrowd"):
            crowded.add(photo.id)
        else:
            photo.objects.append(annotation)
    used = [photo for photo in photos.values() if not training or photo.objects or photo.id not in crowded]
    if not used:
        raise ValueError(f"{str(file)!r} contains no usable image")
    return Coco(
        used,
        classes=[category["name"] for category in categories],
        category_ids=[category["id"] for category in categories],
        annotations={} if training else {**content, "annotations": kept},
        training=training,
        skip_corrupt=skip_corrupt,
    )


def _what_is_wrong(
    annotation: dict[str, Any], photo: Photo | None, categories: set[int], check_mask: bool
) -> str | None:
    """Masks are checked where evaluation hands them to COCO's code unread; training checks what it reads."""
    if photo is None:
        return f"there is no image {annotation['image_id']}"
    if annotation["category_id"] not in categories:
        return f"there is no category {annotation['category_id']}"
    left, top, right, bottom = _corners(annotation["bbox"], photo.height, photo.width)
    if right <= left or bottom <= top:
        inside = f"an image of {photo.width} x {photo.height}, {photo.path.name}"
        return f"its box {annotation['bbox']} (left, top, width, height) has no area in {inside}"
    if check_mask:
        try:
            check(annotation["segmentation"], photo.height, photo.width)
        except ValueError as error:
            return str(error)
    return None


def _corners(box: Sequence[float], height: int, width: int) -> tuple[float, float, float, float]:
    """COCO's left, top, width, height as left, top, right, bottom, inside the image."""
    left, top, right, bottom = box[0], box[1], box[0] + box[2], box[1] + box[3]
    return max(0.0, left), max(0.0, top), min(float(width), right), min(float(height), bottom)


def as_results(detections: Target, image_id: Any, category_ids: Sequence[int]) -> list[dict[str, Any]]:
    """What a detector has found in an image, in COCO's format of results: plain values, masks as runs."""
    boxes = box_convert(detections["boxes"], "xyxy", "xywh")
    return [
        {
            "image_id": image_id,
            "category_id": category_ids[label - 1],
            "bbox": box,
            "score": score,
            "segmentation": encode(mask[0] > 0.5),
        }
        for label, box, score, mask in zip(
            detections["labels"].tolist(),
            boxes.tolist(),
            detections["scores"].tolist(),
            detections["masks"],
            strict=True,
        )
    ]


def large_scale_jitter(
    side: int, mean: Sequence[float], scale: tuple[float, float] = (0.1, 2.0), flip: float = 0.5
) -> Jitter:
    """Images of `side` x `side`: flipped or not, of 0.1 to 2 times that size, then cropped, or filled with `mean`."""
    colour = [round(255 * value) for value in mean]
    transform = v2.Compose(
        [
            v2.RandomHorizontalFlip(flip),
            v2.ScaleJitter((side, side), scale, antialias=True),
            v2.RandomCrop(side, pad_if_needed=True, fill={tv_tensors.Image: colour, tv_tensors.Mask: 0}),
            v2.ToDtype({tv_tensors.Image: torch.float32, "others": None}, scale=True),
        ]
    )

    def jitter(image: Tensor, target: Target) -> tuple[Tensor, Target]:
        image, target = transform(image, target)
        return image.as_subclass(Tensor), visible({name: value.as_subclass(Tensor) for name, value in target.items()})

    return jitter


def visible(target: Target) -> Target:
    """What of the objects can still be seen: those with a pixel left, and their boxes not larger than that needs."""
    shown = target["masks"].bool().flatten(1).any(1)
    boxes, labels, masks = (target[name][shown] for name in ("boxes", "labels", "masks"))
    if len(boxes):
        tight = masks_to_boxes(masks)  # to the pixel, where an annotation may be finer
        boxes = torch.cat(
            [torch.maximum(boxes[:, :2], tight[:, :2] - 1), torch.minimum(boxes[:, 2:], tight[:, 2:] + 2)], dim=1
        )
    large = ((boxes[:, 2:] - boxes[:, :2]) >= 1).all(1)
    return {"boxes": boxes[large], "labels": labels[large], "masks": masks[large]}
