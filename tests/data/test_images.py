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
from tustin.data.decoded import decode
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
    with pytest.raises(FileNotFoundError, match=r"no folder .*train' with one subfolder per class"):
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


def test_a_strip_that_would_fill_the_memory_when_it_is_enlarged(tmp_path):
    for size in ((1, 1001), (2002, 2)):
        Image.new("L", size).save(path := tmp_path / "strip.png")
        with pytest.raises(UnreadableError, match="one side is more than 1,000 times as long as the other"):
            read_image(path)
    Image.new("L", (1, 1000)).save(path)
    assert read_image(path).size == (1, 1000)


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
    with pytest.raises(ValueError, match="must have the same classes; 'bird' is in only one of them"):
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


# --- whole batches, and decoded once ----------------------------------------------------------------------------------

PLAIN = {"crop": "padded", "flip": 0.5, "color_jitter": 0.0, "auto": None, "erase": 0.0}


def test_a_sample_of_a_batch_is_what_it_is_alone(image_folder):
    images = folder(image_folder, training=True).prepared(transforms.for_training(FACTS, **PLAIN), 3, False, None)
    keys = [(i, 2**62 + 12345 * i) for i in range(12)]
    together = images.__getitems__(keys)["images"]
    assert torch.equal(together, torch.cat([images.__getitems__([key])["images"] for key in keys]))
    assert torch.equal(together.flip(0), images.__getitems__(keys[::-1])["images"])


def test_crops_and_flips_are_those_of_the_padded_image(tmp_path):
    """Every sample is one of the 2 x 5 x 5 views that padding by two pixels allows, and all of them occur."""
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    prepare = transforms.for_training(FACTS, **PLAIN)
    images = Images([pixels], [0], ["a"], True).prepared(prepare, 3, False, None)
    padded = torch.from_numpy(np.pad(pixels, ((2, 2), (2, 2), (0, 0)))).permute(2, 0, 1).float() / 255 * 2 - 1
    views = [padded[:, y : y + 16, x : x + 16] for y in range(5) for x in range(5)]
    views += [view.flip(2) for view in views]
    seeds = np.random.default_rng(1).integers(2**63, size=1000).tolist()
    samples = images.__getitems__([(0, seed) for seed in seeds])["images"]
    matches = torch.cdist(
        samples.flatten(1), torch.stack(views).flatten(1), compute_mode="donot_use_mm_for_euclid_dist"
    )
    assert matches.min(dim=1).values.max() < 1e-5
    counts = matches.argmin(dim=1).bincount(minlength=50)
    assert counts.min() > 0
    assert 0.4 < counts[25:].sum() / 1000 < 0.6


def test_evaluation_in_batches_is_timms(image_folder):
    for crop_pct in (1.0, 0.8):
        facts = {**FACTS, "crop_pct": crop_pct}
        images = folder(image_folder, training=False)
        ways = transforms.for_evaluation(facts), transforms.for_evaluation_in_batches(facts)
        one, other = (images.prepared(way, 3, False, True).__getitems__([(i, 0) for i in range(4)]) for way in ways)
        assert torch.equal(one["images"], other["images"])


def test_decoded_images_are_mapped_and_checked_against_the_files(image_folder, tmp_path, monkeypatch):
    (image_folder / "train" / "cat" / "0.png").write_bytes(b"broken")
    images, cache = folder(image_folder, training=True), str(tmp_path / "cache")
    prepare = transforms.for_training(FACTS, **PLAIN)

    def opened():
        return images.prepared(prepare, 3, True, True, cache)

    plain, first = images.prepared(prepare, 3, True, True), opened()
    keys = [(i, i) for i in range(12)]
    expected = plain.__getitems__(keys)["images"]
    assert torch.equal(first.__getitems__(keys)["images"], expected)
    decoding = []
    monkeypatch.setattr("tustin.data.decoded.decode", lambda *args: decoding.append(1) or decode(*args))
    assert torch.equal(opened().__getitems__(keys)["images"], expected)
    assert not decoding, "the second time nothing is decoded"

    [pixels] = (tmp_path / "cache").glob("*.pixels.npy")
    content = bytearray(pixels.read_bytes())
    content[-1] ^= 1
    pixels.write_bytes(content)
    assert torch.equal(opened().__getitems__(keys)["images"], expected)
    assert len(decoding) == 1, "a flipped bit is noticed"
    Image.new("RGB", (30, 20), "red").save(image_folder / "train" / "dog" / "1.png")
    changed = opened().__getitems__(keys)["images"]
    assert len(decoding) == 2, "another file is noticed"
    assert not torch.equal(changed, expected)
