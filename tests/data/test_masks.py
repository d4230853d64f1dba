"""Images and masks: found in pairs, read as classes; and what is said about the ones that do not fit together."""

import numpy as np
import pytest
import torch
from PIL import Image

from tustin.data.ade20k import ade20k
from tustin.data.mask_transforms import ForEvaluation, ForTraining
from tustin.data.masks import UNLABELLED, masked_folder
from tustin.support.masks import values_of

from .masked_shapes import CLASSES, write_masked_shapes

NORMAL = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}


@pytest.fixture
def shapes(tmp_path):
    return write_masked_shapes(tmp_path / "shapes", train=4, val=2, size=(24, 20))


def prepared(images, **options):
    transform = (
        ForTraining(16, **NORMAL, short_side=16)
        if images.training
        else ForEvaluation(**NORMAL, long_side=64, short_side=10)
    )
    return images.prepared(transform, 3, **options)


def error_of(images, index=0, **options):
    return prepared(images, **options).__getitems__([(index, 0)])["error"]


def test_pairs_and_classes(shapes):
    images = masked_folder(shapes, training=True)
    assert images.classes == CLASSES
    assert [(image.name, mask.name) for image, mask in images.pairs] == [(f"{i}.png", f"{i}.png") for i in range(4)]
    assert len(masked_folder(shapes, training=False)) == 2


def test_training_batches_are_tensors_of_one_size(shapes):
    batch = prepared(masked_folder(shapes, training=True)).__getitems__([(0, 1), (1, 2), (2, 3)])
    assert batch["images"].shape == (3, 3, 16, 16)
    assert (batch["masks"].shape, batch["masks"].dtype) == ((3, 16, 16), torch.int64)
    assert set(batch["masks"].unique().tolist()) <= {UNLABELLED, 0, 1, 2}


def test_evaluation_keeps_masks_as_they_are(shapes):
    for part in ("images", "annotations"):
        file = shapes / part / "validation" / "1.png"
        Image.open(file).resize((31, 57), Image.Resampling.NEAREST).save(file)
    images = masked_folder(shapes, training=False)
    batch = prepared(images).__getitems__([(0, 0), (1, 0)])
    assert [tuple(mask.shape) for mask in batch["masks"]] == [(20, 24), (57, 31)]
    assert [tuple(image.shape) for image in batch["images"]] == [(3, 10, 12), (3, 18, 10)]  # in their proportions
    values = np.asarray(Image.open(images.pairs[0][1])).astype(int)
    assert np.array_equal(batch["masks"][0].numpy(), values - 1)


@pytest.mark.parametrize(
    ("unlabelled", "values", "classes"),
    [
        (0, [0, 1, 3], [UNLABELLED, 0, 2]),
        (255, [0, 2, 255], [0, 2, UNLABELLED]),
        (1, [0, 1, 2, 3], [0, UNLABELLED, 1, 2]),
    ],
)
@pytest.mark.parametrize("mode", ["L", "P", "I;16"])
def test_value_of_no_class_and_the_others_in_their_order(shapes, unlabelled, values, classes, mode):
    mask = np.zeros((20, 24), np.uint16 if mode == "I;16" else np.uint8)
    mask.flat = np.resize(values, mask.size)
    picture = Image.fromarray(mask)
    if mode == "P":
        picture.putpalette(bytes(range(256)) * 3)
    picture.save(shapes / "annotations" / "validation" / "0.png")
    batch = prepared(masked_folder(shapes, training=False, unlabelled=unlabelled)).__getitems__([(0, 0)])
    read = batch["masks"][0].numpy()
    assert np.array_equal(read.ravel(), np.resize(classes, read.size))
    labelled = read != UNLABELLED
    assert np.array_equal(values_of(read, unlabelled)[labelled], mask[labelled])


def test_missing_mask_is_named(shapes):
    (shapes / "annotations" / "training" / "2.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"images/training/2\.png' has no mask .*annotations/training/2\.png"):
        masked_folder(shapes, training=True)


@pytest.mark.parametrize("in_memory", [True, False])
def test_class_out_of_range_is_named(shapes, in_memory):
    file = shapes / "annotations" / "validation" / "0.png"
    mask = np.array(Image.open(file))
    mask[3, 4] = 9
    Image.fromarray(mask).save(file)
    error = error_of(masked_folder(shapes, training=False), in_memory=in_memory)
    assert f"the mask '{file}' has the value 9, which is neither one of the 3 classes" in error


def test_sizes_that_differ_are_named(shapes):
    file = shapes / "annotations" / "validation" / "0.png"
    Image.new("L", (7, 9)).save(file)
    error = error_of(masked_folder(shapes, training=False))
    assert f"the mask '{file}' is 7 x 9, but its image" in error
    assert "24 x 20" in error


def test_mask_in_colours_is_named(shapes):
    file = shapes / "annotations" / "validation" / "0.png"
    Image.new("RGB", (24, 20)).save(file)
    assert f"the mask '{file}' has colours (RGB)" in error_of(masked_folder(shapes, training=False))


@pytest.mark.parametrize("part", ["images", "annotations"])
def test_file_that_cannot_be_read_is_named_or_skipped(shapes, part):
    for half in ("training", "validation"):
        (shapes / part / half / "0.png").write_bytes(b"broken")
    error = error_of(masked_folder(shapes, training=False))
    assert str(shapes / part / "validation" / "0.png") in error
    assert "--data.skip_corrupt true" in error
    train = prepared(masked_folder(shapes, training=True), skip_corrupt=True).__getitems__([(0, 1), (1, 2)])
    assert (len(train["images"]), train["skipped"]) == (2, 1)
    held_out = prepared(masked_folder(shapes, training=False), skip_corrupt=True).__getitems__([(0, 0), (1, 0)])
    assert (len(held_out["images"]), held_out["skipped"]) == (1, 1)
    nothing = prepared(masked_folder(shapes, training=True), skip_corrupt=True).__getitems__([(0, 1)])
    assert "none of the 1 samples" in nothing["error"]


def test_memory_and_files_give_the_same(shapes):
    images = masked_folder(shapes, training=True)
    kept, read = prepared(images, in_memory=True), prepared(images, in_memory=False)
    keys = [(i, 50 + i) for i in range(4)]
    for name in ("images", "masks"):
        assert torch.equal(kept.__getitems__(keys)[name], read.__getitems__(keys)[name])


def test_folders_and_names_that_are_not_there(shapes, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*images/training'.*annotations/"):
        masked_folder(tmp_path / "nowhere", training=True)
    (shapes / "classes.txt").write_text("\n\n")
    with pytest.raises(ValueError, match=r"classes\.txt' names no class"):
        masked_folder(shapes, training=True)
    (shapes / "classes.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"there is no .*classes\.txt'"):
        masked_folder(shapes, training=True)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"disc\n\xff\xfe\n", "is not text in UTF-8"),
        (b"disc\nsquare\ndisc\n", "names the class 'disc' twice"),
        (b"disc\nsq\x1b[2Juare\n", r"a class, number 2, whose name cannot be printed"),
        ("\n".join(map(str, range(2**15))).encode(), "names 32768 classes, but a mask can have at most 32767"),
    ],
)
def test_class_lists_of_the_wrong_kind(shapes, content, why):
    (shapes / "classes.txt").write_bytes(content)
    with pytest.raises(ValueError, match=rf"classes\.txt' .*{why}|classes\.txt' {why}"):
        masked_folder(shapes, training=True)


def test_mask_with_a_negative_value_is_named(shapes):
    path = shapes / "annotations" / "training" / "0.png"
    Image.fromarray(np.full((24, 20), -3, np.int32)).save(path, format="TIFF")
    assert "has the value -3, which is neither one of the 3 classes" in error_of(masked_folder(shapes, training=True))


def test_ade20k_has_its_150_classes(shapes):
    images = ade20k(shapes, training=True)
    assert len(images.classes) == len(set(images.classes)) == 150
    assert images.classes[:3] == ["wall", "building", "sky"]
    assert images.classes[-1] == "flag"


def test_channels(shapes):
    with pytest.raises(ValueError, match="1 or 3 channels, the model expects 5"):
        masked_folder(shapes, training=True).prepared(lambda image, mask: (image, mask), 5)
