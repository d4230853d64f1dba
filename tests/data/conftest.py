"""A small folder of images, made anew for each test."""

from pathlib import Path

import pytest

from .pictures import write_images


@pytest.fixture
def image_folder(tmp_path: Path) -> Path:
    """Two classes, twelve images to train on and four to evaluate, of 20 x 24 pixels."""
    return write_images(tmp_path / "images", train=6, val=2)
