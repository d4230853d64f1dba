"""What training does to images, at the ends of its range."""

from __future__ import annotations

import pytest
from PIL import Image

from tustin.data import transforms

FACTS = {"input_size": (3, 32, 32), "mean": (0.5,) * 3, "std": (0.5,) * 3, "interpolation": "bicubic"}


@pytest.mark.parametrize("auto", ["rand-m9-mstd0.5-inc1", "rand-m0", "original", "v0r", "augmix-m9"])
def test_the_strongest_posterization_leaves_no_bits(auto: str) -> None:
    transform = transforms.for_training(FACTS, "random", 0.5, 0.0, auto, 0.0)
    found = [op for op in transforms._operations(transform.transforms) if op.name.startswith("Posterize")]
    assert found
    for operation in found:
        operation.prob, operation.magnitude_std = 1.0, 0.0
        for magnitude in range(11):
            operation.magnitude = magnitude
            image = operation(Image.new("RGB", (4, 4), (255, 128, 7)))
            assert image.size == (4, 4)
            if operation.level_fn(magnitude, operation.hparams) == (0,):
                assert image.getextrema() == ((0, 0),) * 3
