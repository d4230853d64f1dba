"""The shares of the classes that a person sees before a segmenter is trained, and the warnings."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from tustin.data import masked_folder, write_masked_shapes
from tustin.data.census import MOST_CLASSES, MOST_MASKS, Census, census

from .masked_shapes import write_masked_shapes as shapes_with_a_border


@pytest.fixture
def shapes(tmp_path):
    return shapes_with_a_border(tmp_path / "shapes", train=4, val=1)


def test_shares_are_those_of_the_masks(shapes):
    found = census(masked_folder(shapes, training=True))
    values = np.stack([np.asarray(Image.open(file)) for file in (shapes / "annotations" / "training").iterdir()])
    for value in range(4):
        assert found.share(value) == pytest.approx(float((values == value).mean()))
    assert (found.read, found.masks) == (4, 4)
    lines = list(found.lines())
    assert lines[0] == "share of pixels by value in all 4 training masks:"
    assert lines[1].endswith("%  (no class: data.unlabelled)")
    assert [line.split()[0] for line in lines[1:]] == ["0", "1", "2", "3"]
    assert [line.split()[-1] for line in lines[2:]] == ["ground", "disc", "square"]


def test_a_wrong_value_for_no_class_is_seen(shapes):
    """The names are shifted, which the shares show, and the last value has no class."""
    lines = list(census(masked_folder(shapes, training=True, unlabelled=255)).lines())
    ground = next(line for line in lines if line.endswith("ground"))
    assert ground.split()[0] == "0"
    assert float(ground.split()[1].rstrip("%")) < 15, "that is the border"
    [warning] = [line for line in lines if line.startswith("WARNING")]
    assert "values without a class: 3; such a mask ends the run" in warning
    assert "is data.unlabelled 255 right?" in warning


def test_a_class_that_is_taken_for_none_is_told():
    lines = list(Census(["ground", "disc"], 0, {0: 900, 1: 80, 2: 20}, 1, 1).lines())
    assert lines[-1].startswith("WARNING: most pixels have the value 0, which means no class; if 0 is a class")


def test_a_class_that_never_occurs_is_named(shapes):
    lines = list(census(masked_folder(shapes, training=True, classes=["a", "b", "c", "d", "e"])).lines())
    assert lines[-1] == "WARNING: 2 of 5 classes have no pixel in these masks: d, e"


def test_many_classes_and_many_masks_are_told_in_short():
    names = [f"c{i}" for i in range(150)]
    found = Census(names, 0, {i + 1: 1000 - i for i in range(140)}, MOST_MASKS, 20_210)
    lines = list(found.lines())
    assert lines[0] == f"share of pixels by value in {MOST_MASKS} of 20210 training masks:"
    assert lines[-2] == f"  and {150 - MOST_CLASSES} classes with fewer pixels"
    assert lines[-1].startswith("WARNING: 10 of 150 classes have no pixel in these masks: c140, c141")
    assert len(lines) == 1 + 1 + MOST_CLASSES + 2


def test_of_many_masks_some_are_read_and_a_broken_one_is_left_to_training(tmp_path, monkeypatch):
    images = masked_folder(write_masked_shapes(tmp_path / "shapes", train=12, val=1, side=16), training=True)
    monkeypatch.setattr("tustin.data.census.MOST_MASKS", 5)
    images.pairs[0][1].write_bytes(b"nothing")
    found = census(images)
    assert (found.read, found.masks) == (4, 12)
    assert sum(found.pixels.values()) == 4 * 16 * 16
