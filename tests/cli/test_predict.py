"""`tustin predict` of a classifier as a user meets it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data import create_transform, resolve_model_data_config

import tustin
from tustin.cli import main

from .commands import refused, told


def checkpoint(folder: Path, **kwargs: Any) -> Path:
    torch.manual_seed(0)
    options = {"depth": 1, "num_classes": 7, "discretization": "zoh"} | kwargs
    model = tustin.create_model("vim_nano_patch4_32", **options)
    path = folder / "model.safetensors"
    names = [f"sort {i}" for i in range(options["num_classes"])]
    tustin.save(model, path, class_names=names if kwargs.get("named", True) else None)
    return path


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Colour, grey, transparent, palette, black and white, 16 bit, and one in a folder of its own."""
    random = np.random.default_rng(0)
    folder = tmp_path / "photos"
    (folder / "z" / "deep").mkdir(parents=True)
    colour = Image.fromarray(random.integers(0, 255, (40, 60, 3), dtype=np.uint8))
    colour.save(folder / "a.png")
    colour.convert("L").save(folder / "b.JPG")
    colour.convert("RGBA").save(folder / "c.png")
    colour.convert("P").save(folder / "d.gif")
    colour.convert("1").save(folder / "e.bmp")
    Image.fromarray(random.integers(0, 65535, (33, 35), dtype=np.uint16)).save(folder / "f.png")
    transparent = colour.convert("P")
    transparent.save(folder / "g.png", transparency=bytes(range(256)))
    colour.save(folder / "z" / "deep" / "h.webp")
    (folder / "notes.txt").write_text("not an image")
    return folder


def test_predict_folders_in_order(capsys: pytest.CaptureFixture[str], tmp_path: Path, photos: Path) -> None:
    file = checkpoint(tmp_path)
    facts = told(capsys, "predict", photos, photos / "a.png", "--checkpoint", file, "--batch-size", 3)
    assert facts["discretization"] == "zoh"
    assert facts["failed"] == []
    assert [Path(image["image"]).name for image in facts["images"]] == [
        *("a.png", "b.JPG", "c.png", "d.gif", "e.bmp", "f.png", "g.png", "h.webp"),
        "a.png",
    ]
    for image in facts["images"]:
        probabilities = [entry["probability"] for entry in image["top"]]
        assert len(probabilities) == 5
        assert probabilities == sorted(probabilities, reverse=True)
        assert all(entry["name"] == f"sort {entry['class']}" for entry in image["top"])


def test_predict_prepares_images_as_timm_does(capsys: pytest.CaptureFixture[str], tmp_path: Path, photos: Path) -> None:
    file = checkpoint(tmp_path, pretrained_cfg_overlay={"mean": (0.1, 0.5, 0.9), "crop_pct": 0.5})
    [image] = told(capsys, "predict", photos / "a.png", "--checkpoint", file, "--top", 7)["images"]
    model = tustin.load(file)
    prepare = create_transform(**resolve_model_data_config(model))
    assert "0.9" in str(prepare)
    with torch.no_grad():
        expected = model(prepare(Image.open(photos / "a.png"))[None]).softmax(-1)[0]
    shown = {entry["class"]: entry["probability"] for entry in image["top"]}
    assert [shown[i] for i in range(7)] == pytest.approx(expected.tolist(), abs=1e-6)


def test_predict_table(capsys: pytest.CaptureFixture[str], tmp_path: Path, photos: Path) -> None:
    file = checkpoint(tmp_path, num_classes=3)
    assert main(["predict", str(photos / "a.png"), "--checkpoint", str(file)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert all(f"sort {i}" in out for i in range(3))
    assert "%" in out


def test_predict_without_names_and_in_grey(capsys: pytest.CaptureFixture[str], tmp_path: Path, photos: Path) -> None:
    file = tmp_path / "grey.safetensors"
    tustin.save(tustin.create_model("vim_nano_patch2_8", depth=1), file)
    [image] = told(capsys, "predict", photos / "a.png", "--checkpoint", file, "--top", 1)["images"]
    assert image["top"][0]["name"] is None
    assert main(["predict", str(photos / "a.png"), "--checkpoint", str(file), "--top", "1"]) == 0
    assert f"class {image['top'][0]['class']} " in capsys.readouterr().out


def test_predict_names_and_skips_what_it_cannot_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, photos: Path
) -> None:
    file = checkpoint(tmp_path)
    content = (photos / "a.png").read_bytes()
    (photos / "b_half.png").write_bytes(content[: len(content) // 2])
    (photos / "c_text.png").write_text("not an image")
    (photos / "d_empty.jpg").touch()
    argv = ["predict", str(photos), str(photos / "missing.png"), "--checkpoint", str(file), "--json"]
    assert main(argv) == 1
    out, err = capsys.readouterr()
    facts = json.loads(out)
    assert len(facts["images"]) == 8
    assert [Path(bad["image"]).name for bad in facts["failed"]] == [
        *("b_half.png", "c_text.png", "d_empty.jpg", "missing.png")
    ]
    lines = err.splitlines()
    assert lines[-1] == "tustin: error: 4 of 12 images could not be read"
    assert lines[1] == f"tustin: skipped {photos / 'c_text.png'}: not an image (PNG, JPEG, BMP, GIF, PPM, TIFF, WEBP)"
    assert lines[3] == f"tustin: skipped {photos / 'missing.png'}: No such file or directory"
    assert len(lines) == 5


def test_predict_refuses_with_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path, photos: Path) -> None:
    file, image = checkpoint(tmp_path), photos / "a.png"
    (tmp_path / "empty").mkdir()
    assert "there is no image in the folder" in refused(capsys, 1, "predict", tmp_path / "empty", "--checkpoint", file)
    assert "none.safetensors: No such file" in refused(
        capsys, 1, "predict", image, "--checkpoint", tmp_path / "none.safetensors"
    )
    assert "--checkpoint" in refused(capsys, 2, "predict", image)
    assert "at least 1" in refused(capsys, 2, "predict", image, "--checkpoint", file, "--top", "0")
    headless = checkpoint(tmp_path, num_classes=0)
    assert "has no classification head" in refused(capsys, 1, "predict", image, "--checkpoint", headless)
    two = checkpoint(tmp_path, in_chans=2)
    assert "images have 1 or 3 channels, the model expects 2" in refused(
        capsys, 1, "predict", image, "--checkpoint", two
    )
