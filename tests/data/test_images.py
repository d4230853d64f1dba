"""Image folders: found, decoded, augmented by seed; and what is said about the ones that are broken."""

import os
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import datasets

import tustin
from tustin.data import Images, cifar, folder, transforms
from tustin.support.pictures import UnreadableError, read_image

FACTS = {
    "input_size": (3, 16, 16),
    "interpolation": "bicubic",
    "mean": (0.5, 0.5, 0.5),
    "std": (0.5, 0.5, 0.5),
    "crop_pct": 1.0,
    "crop_mode": "center",
}
AUGMENT = {"crop": "padded", "flip": 0.5, "color_jitter": 0.0, "auto": "rand-m9-mstd0.5-inc1", "erase": 0.5}


def prepared(images, training=False, in_memory=None, skip_corrupt=False):
    prepare = transforms.for_training(FACTS, **AUGMENT) if training else transforms.for_evaluation(FACTS)
    return images.prepared(prepare, 3, skip_corrupt, in_memory)


def test_classes_and_labels(image_folder):
    images = folder(image_folder, training=True)
    assert images.classes == ["cat", "dog"]
    assert (len(images), sum(images.labels)) == (12, 6)
    assert len(folder(image_folder, training=False)) == 4


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "CMYK", "I;16"])
def test_any_kind_of_image_becomes_rgb(image_folder, mode):
    file = image_folder / "val" / "cat" / ("odd.jpg" if mode == "CMYK" else "odd.png")
    Image.new(mode, (20, 10)).save(file)
    images = prepared(folder(image_folder, training=False))
    index = [str(source) for source in folder(image_folder, training=False).sources].index(str(file))
    assert images.__getitems__([(index, 0)])["images"].shape == (1, 3, 16, 16)


def test_memory_and_files_give_the_same(image_folder):
    images = folder(image_folder, training=True)
    kept, read = (prepared(images, training=True, in_memory=choice) for choice in (True, False))
    assert isinstance(kept.sources[0], np.ndarray)
    assert kept.sources[0].dtype == np.uint8
    assert prepared(images).sources[0] is not images.sources[0]  # small, so kept by itself
    keys = [(i, 100 + i) for i in range(12)]
    assert torch.equal(kept.__getitems__(keys)["images"], read.__getitems__(keys)["images"])


def test_augmentation_follows_the_seed_and_nothing_else(image_folder):
    images = prepared(folder(image_folder, training=True), training=True)
    one = images.__getitems__([(0, 7), (1, 8)])["images"]
    torch.manual_seed(99)
    np.random.seed(99)  # noqa: NPY002
    other = images.__getitems__([(1, 8), (0, 7)])["images"].flip(0)
    assert torch.equal(one, other)
    assert not torch.equal(one[0], images.__getitems__([(0, 9)])["images"][0])


@pytest.mark.parametrize("crop", ["resized", "padded", "none"])
def test_crops_have_the_models_size(image_folder, crop):
    prepare = transforms.for_training(FACTS, **{**AUGMENT, "crop": crop})
    images = folder(image_folder, training=True).prepared(prepare, 3, False, None)
    assert images.__getitems__([(0, 1), (7, 2)])["images"].shape == (2, 3, 16, 16)


@pytest.mark.parametrize("in_memory", [True, False])
def test_corrupt_image_is_named(image_folder, in_memory):
    broken = image_folder / "train" / "cat" / "0.png"
    broken.write_bytes(broken.read_bytes()[:60])
    images = prepared(folder(image_folder, training=True), in_memory=in_memory)
    error = images.__getitems__([(1, 0), (0, 0)])["error"]
    assert f"cannot read the image '{broken}'" in error
    assert "--data.skip_corrupt" in error


@pytest.mark.parametrize(("training", "size"), [(True, 3), (False, 2)])
def test_corrupt_image_is_skipped_and_counted(image_folder, training, size):
    part = "train" if training else "val"
    (image_folder / part / "cat" / "0.png").write_text("not an image")
    images = prepared(folder(image_folder, training), training, skip_corrupt=True)
    batch = images.__getitems__([(0, 0), (1, 1), (2, 2)])
    assert (batch["skipped"], len(batch["images"]), len(batch["labels"])) == (1, size, size)


def test_batch_without_a_readable_image(image_folder):
    (image_folder / "val" / "cat" / "0.png").write_text("not an image")
    images = prepared(folder(image_folder, training=False), skip_corrupt=True)
    assert "none of the 1 images" in images.__getitems__([(0, 0)])["error"]


def test_folders_that_are_not_there(image_folder, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder 'nowhere'"):
        folder("nowhere", training=True)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"no folder .*train' with a folder for each class"):
        folder(tmp_path / "empty", training=True)
    (tmp_path / "bare" / "train" / "cat").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="has no images"):
        folder(tmp_path / "bare", training=True)


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n0 0 8 8 rectfill\nshowpage\n%%EOF\n"


def test_what_is_called_png_but_is_not_one_starts_no_program(tmp_path, monkeypatch):
    def start(*args, **kwargs):
        raise AssertionError("a program was started")

    monkeypatch.setattr("subprocess.Popen", start)
    (tmp_path / "a.png").write_bytes(EPS)
    with pytest.raises(UnreadableError, match=r"cannot read the image .*a\.png': not an image \(PNG, JPEG"):
        read_image(tmp_path / "a.png", "RGB")


def test_a_bomb_is_one_sentence(tmp_path, monkeypatch):
    Image.new("L", (64, 64)).save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(UnreadableError, match=r"a\.png': it has more than 2,000 pixels$"):
        read_image(tmp_path / "a.png", "RGB")


def test_what_is_not_a_file_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    for path in (tmp_path / "pipe.png", tmp_path):
        with pytest.raises(UnreadableError, match="not a file"):
            read_image(path, "RGB")


def test_images_are_opened_in_one_place():
    source = Path(tustin.__file__).parent
    assert [file.name for file in source.rglob("*.py") if "Image.open" in file.read_text("utf-8")] == ["pictures.py"]


def test_other_classes_in_one_half(image_folder):
    (image_folder / "val" / "bird").mkdir()
    with pytest.raises(ValueError, match="must have the same classes; 'bird' is in one only"):
        folder(image_folder, training=False)


def test_channels():
    grey = Images([np.zeros((16, 16, 3), np.uint8)], [0], ["x"], training=False)
    with pytest.raises(ValueError, match="1 or 3 channels, the model expects 5"):
        grey.prepared(transforms.for_evaluation(FACTS), 5, False, None)


def test_cifar_without_internet(monkeypatch, tmp_path):
    def offline(*args, **kwargs):
        raise URLError("Name or service not known")

    monkeypatch.setattr(datasets.CIFAR100, "download", offline)
    with pytest.raises(RuntimeError, match=r"cifar100 is not in .* cannot be downloaded .*Name or service not known"):
        cifar("cifar100", tmp_path, training=True, download=True)


def test_cifar_that_may_not_be_downloaded(tmp_path):
    with pytest.raises(RuntimeError, match=r"cifar10 is not in .*--data\.download true 'tustin train' fetches it"):
        cifar("cifar10", tmp_path, training=True, download=False)
