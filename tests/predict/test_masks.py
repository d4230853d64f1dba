"""`tustin train`, `eval` and `predict` for segmentation, as a user meets them."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.data.masked_shapes import CLASSES, write_masked_shapes
from tests.train.small_segmentation import small_segmentation
from tustin.cli import main
from tustin.models import describe, load, save
from tustin.predict import masks as predict_masks
from tustin.predict import names_for
from tustin.train import train


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of the shapes, and a checkpoint that has learnt a little."""
    root = tmp_path_factory.mktemp("trained")
    shapes = write_masked_shapes(root / "shapes", train=8, val=2)
    train(small_segmentation(shapes, root / "out", updates=16, run__eval_updates=16))
    return shapes, root / "out" / "best.safetensors"


def opened(path):
    with Image.open(path) as file:
        return file.copy()


def test_masks_and_overlays(trained, tmp_path, capsys):
    shapes, checkpoint = trained
    photo = tmp_path / "odd.jpg"
    opened(shapes / "images" / "training" / "0.png").resize((45, 61)).save(photo)
    argv = ["predict", photo, shapes / "images" / "validation", "--checkpoint", checkpoint, "--task", "segmentation"]
    assert main([*map(str, argv), "--out", str(tmp_path / "out"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [Path(image["mask"]).name for image in told["images"]] == ["odd-mask.png", "0-mask.png", "1-mask.png"]
    for image in told["images"]:
        size, mask, overlay = opened(image["image"]).size, opened(image["mask"]), opened(image["overlay"])
        assert (mask.mode, mask.size) == ("P", size)
        values, counts = np.unique(np.asarray(mask), return_counts=True)
        assert set(values) <= {1, 2, 3}  # as in the masks of the training
        assert {one["value"]: one["share"] for one in image["classes"]} == {
            value: pytest.approx(count / mask.width / mask.height) for value, count in zip(values, counts, strict=True)
        }
        assert all(one["name"] == CLASSES[one["value"] - 1] for one in image["classes"])
        assert overlay.height == size[1]
        assert overlay.width > size[0]  # the names are beside it


def test_mask_is_what_evaluation_measures(trained, tmp_path, capsys):
    shapes, checkpoint = trained
    assert main(["eval", str(checkpoint), "--json"]) == 0
    metrics = json.loads(capsys.readouterr().out)["metrics"]
    argv = ["predict", str(shapes / "images" / "validation"), "--checkpoint", str(checkpoint), "--out", str(tmp_path)]
    assert main(argv) == 0
    assert "share" in capsys.readouterr().out
    right = total = 0
    for file in sorted((shapes / "annotations" / "validation").iterdir()):
        truth, predicted = np.asarray(opened(file)), np.asarray(opened(tmp_path / f"{file.stem}-mask.png"))
        right += int((truth == predicted)[truth > 0].sum())
        total += int((truth > 0).sum())
    assert metrics["pixel_accuracy"] == pytest.approx(100 * right / total)


def test_eval_tells_the_mean_and_every_class(trained, capsys):
    assert main(["eval", str(trained[1]), "--segmentation.window", "slide", "--data.path", str(trained[0])]) == 0
    out = capsys.readouterr().out
    first, *table = out.splitlines()
    assert "mean IoU" in first
    assert "(2 images)" in first
    assert [line.split()[0] for line in table if line.split()[:1] and line.split()[0] in CLASSES] == CLASSES
    assert "pixel accuracy" in out
    assert "(2 images)" in out


def test_info_of_a_segmenter_is_that_of_its_backbone(trained, capsys):
    assert main(["info", str(trained[1]), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["model"].startswith("the backbone of")
    assert told["tokens"] == 65


def test_overlay_shows_image_and_colours():
    image = Image.new("RGB", (60, 40), (200, 200, 200))
    values = np.zeros((40, 60), np.int64)
    values[:, 30:] = 1
    shares = [{"value": 1, "name": "a rather long name", "share": 0.5}, {"value": 0, "name": "none", "share": 0.5}]
    picture = np.asarray(predict_masks.overlay(image, values, shares))
    colour = predict_masks.colours(2)[1]
    assert tuple(picture[20, 10]) == tuple(picture[20, 20])
    blended = 200 * (1 - predict_masks.OPACITY) + predict_masks.OPACITY * colour.astype(float)
    assert np.abs(picture[20, 45] - blended).max() <= 1
    assert (picture[:, 60:] != 255).any()  # the names
    assert (picture[:, -2:] == 255).all()  # none of which is cut off


def test_black_is_what_has_no_class():
    colours = predict_masks.colours(12, black=11)
    assert tuple(colours[11]) == (0, 0, 0)
    assert len({tuple(colour) for colour in colours.tolist()}) == 12
    assert tuple(predict_masks.colours(11, black=255)[0]) != (0, 0, 0)
    picture = predict_masks.as_picture(np.zeros((2, 2), dtype=np.int64), unlabelled=255)
    assert picture.convert("RGB").getpixel((0, 0)) != (0, 0, 0)


def test_colours_differ_and_zero_is_black():
    colours = predict_masks.colours(151)
    assert tuple(colours[0]) == (0, 0, 0)
    assert len({tuple(colour) for colour in colours.tolist()}) == 151


def test_more_classes_than_a_palette_holds():
    values = np.array([[0, 300]])
    picture = predict_masks.as_picture(values)
    assert np.array_equal(np.asarray(picture), values)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (["a/x.jpg", "b/x.png", "y.png"], ["x-1", "x-2", "y"]),
        (["a.png", "a.jpg", "a-1.png"], ["a-2", "a-3", "a-1"]),
        (["a-1.png", "a.png", "b/a-1.png", "b/a.png"], ["a-1-1", "a-2", "a-1-2", "a-3"]),
        (["a.png", "A.jpg", "b.png"], ["a-1", "A-2", "b"]),
        (["a.png", "a.png"], ["a-1", "a-2"]),
        (["out/a.png", "out/a-mask.png"], ["a-1", "a-mask"]),
        (["out/a.png", "out/a-mask.png", "out/a-1-mask.png"], ["a-2", "a-mask", "a-1-mask"]),
    ],
)
def test_no_picture_overwrites_another_or_an_image(given, names):
    assert names_for([Path(name) for name in given], Path("out"), ["-mask.png", "-overlay.png"]) == names


def test_images_beside_the_masks_stay(trained, tmp_path):
    shapes, checkpoint = trained
    picture = opened(shapes / "images" / "training" / "0.png")
    for name in ("a.png", "a.bmp", "a-1.png", "a-mask.png"):
        picture.save(tmp_path / name)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    assert main(["predict", str(tmp_path), "--checkpoint", str(checkpoint), "--out", str(tmp_path)]) == 0
    assert all(file.read_bytes() == content for file, content in before.items())
    assert len(list(tmp_path.iterdir())) == 4 + 2 * 4


def test_mistakes_are_one_line(trained, tmp_path, capsys):
    shapes, checkpoint = trained
    image = str(shapes / "images" / "training" / "0.png")
    assert main(["predict", image, "--checkpoint", str(checkpoint), "--task", "classification"]) == 1
    assert "is a model for segmentation, not for classification" in capsys.readouterr().err
    (tmp_path / "bad.png").write_bytes(b"nothing")
    argv = [
        "predict",
        str(tmp_path / "bad.png"),
        image,
        "--checkpoint",
        str(checkpoint),
        "--out",
        str(tmp_path / "out"),
    ]
    assert main(argv) == 1
    captured = capsys.readouterr()
    assert "skipped" in captured.err
    assert "1 of 2 images could not be read" in captured.err
    assert (tmp_path / "out" / "0-mask.png").exists()
    assert main(["eval", str(checkpoint), "--data.name", "folder", "--data.path", str(shapes)]) == 1
    assert "segmentation needs data.name ade20k or masks" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ({"segmentation.window_stride": 0}, "segmentation.window_stride must be a whole number from 1"),
        ({"segmentation.short_side": 10**9}, "segmentation.short_side must be a whole number from 1"),
        ({"segmentation.colour": 1}, "unknown argument 'segmentation.colour'"),
        ({"data.unlabelled": "0"}, "data.unlabelled must be a whole number from 0"),
    ],
)
def test_settings_in_a_checkpoint_are_checked(trained, tmp_path, capsys, setting, why):
    shapes, checkpoint = trained
    model, settings = load(checkpoint), describe(checkpoint)["metadata"]["config"] | setting
    save(model, tmp_path / "a.safetensors", metadata={"config": settings})
    image = str(shapes / "images" / "training" / "0.png")
    argv = ["--checkpoint", str(tmp_path / "a.safetensors"), "--out", str(tmp_path / "out")]
    for command in (["predict", image, *argv], ["eval", argv[1]]):
        assert main(command) == 1
        err = capsys.readouterr().err
        assert why in err
        assert err.count("\n") == 1
