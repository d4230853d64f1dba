"""`tustin predict` of a segmenter's ONNX file: the masks, the names and the numbers of its checkpoint."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import tustin
from tests.data.masked_shapes import write_masked_shapes
from tests.train.small_segmentation import small_segmentation
from tustin.data.mask_transforms import ForEvaluation
from tustin.export import export
from tustin.models import describe, save
from tustin.models.segmenter import _largest
from tustin.predict.preparation import prepare_whole
from tustin.predict.resampling import largest, resampled
from tustin.train import train

from ..cli.commands import refused, told

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("transformers")

SIZES = {"segmentation.long_side": 32, "segmentation.short_side": 32}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a checkpoint, best.safetensors, and photos of several sizes, two of one name."""
    root = tmp_path_factory.mktemp("trained")
    shapes = write_masked_shapes(root / "shapes", train=8, val=2)
    train(small_segmentation(shapes, root / "run", updates=16, run__eval_updates=16))
    (root / "run" / "best.safetensors").rename(root / "best.safetensors")
    (root / "photos").mkdir()
    for number, size in enumerate(((32, 32), (45, 61), (90, 40))):
        with Image.open(shapes / "images" / "training" / f"{number}.png") as file:
            file.resize(size, Image.Resampling.BICUBIC).save(root / "photos" / f"{number}.png")
    (root / "photos" / "2.png").rename(root / "photos" / "1.bmp")  # two of one name
    return root


@pytest.fixture(scope="module")
def exported(trained: Path) -> Path:
    """Its checkpoint as a file that reads 32 x 32 pixels only."""
    export(tustin.load(trained / "best.safetensors"), path := trained / "fixed.onnx", trained_with=SIZES, check=False)
    return path


def changed(trained: Path, folder: Path, **settings: Any) -> Path:
    """The same checkpoint, trained with other settings as it says."""
    path = trained / "best.safetensors"
    about = describe(path)
    config = about["metadata"]["config"] | {name.replace("__", "."): value for name, value in settings.items()}
    save(tustin.load(path), folder / "other.safetensors", class_names=about["class_names"], metadata={"config": config})
    return folder / "other.safetensors"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        pytest.param({"segmentation__window": "slide", "segmentation__window_stride": 11}, marks=pytest.mark.long),
    ],
    ids=["whole", "windows"],
)
def test_the_same_files_as_of_the_checkpoint(
    trained: Path, settings: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings |= {"data__unlabelled": 255, "segmentation__short_side": 40, "segmentation__long_side": 70}
    checkpoint, exported = changed(trained, tmp_path, **settings), tmp_path / "model.onnx"
    told(capsys, "export", checkpoint, "--dynamic-size", "--out", exported)
    both = [
        told(capsys, "predict", trained / "photos", "--checkpoint", file, "--top", 2, "--out", tmp_path / file.stem)
        for file in (checkpoint, exported)
    ]
    expected, found = both
    assert found["discretization"] == expected["discretization"]
    assert [sorted(file.name for file in (tmp_path / name).iterdir()) for name in ("other", "model")] == [
        ["0-mask.png", "0-overlay.png", "1-1-mask.png", "1-1-overlay.png", "1-2-mask.png", "1-2-overlay.png"]
    ] * 2
    several = 0
    for one, other in zip(found["images"], expected["images"], strict=True):
        assert one["image"] == other["image"]
        assert [told["name"] for told in one["classes"]] == [told["name"] for told in other["classes"]]
        assert [told["share"] for told in one["classes"]] == pytest.approx(
            [told["share"] for told in other["classes"]], abs=0.005
        )
        with Image.open(one["mask"]) as mask, Image.open(other["mask"]) as wanted:
            assert (mask.mode, mask.size, mask.getpalette()) == (wanted.mode, wanted.size, wanted.getpalette())
            several += len(np.unique(np.asarray(wanted)))
            same = np.asarray(mask) == np.asarray(wanted)
        assert same.mean() > 0.995  # Pillow and PyTorch round a pixel of a resized image differently now and then
    assert several > 3  # it has learnt to tell some apart


def test_neither_pytorch_nor_the_models_code(trained: Path, exported: Path, tmp_path: Path) -> None:
    script = (
        "import sys; from tustin.cli import main; code = main(sys.argv[1:]); "
        "print(code, 'torch' in sys.modules, 'tustin.models' in sys.modules)"
    )
    argv = ["predict", trained / "photos" / "0.png", "--checkpoint", exported, "--out", tmp_path / "out"]
    done = subprocess.run([sys.executable, "-c", script, *map(str, argv)], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("0 False False\n")
    assert (tmp_path / "out" / "0-mask.png").is_file()


def test_a_file_of_one_size_reads_no_other(
    trained: Path, exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = "predict", trained / "photos", "--checkpoint", exported, "--out", tmp_path / "out"
    assert (
        "accepts only 32 x 32 pixels, but the image of 90 x 40 is resized to 32 x 14: export the model with "
        "--dynamic-size" in refused(capsys, 1, *argv)
    )
    assert "is a model for segmentation, not for detection" in refused(capsys, 1, *argv, "--task", "detection")


@pytest.mark.parametrize("classes", [1, 5, 40])
@pytest.mark.parametrize("size", [(1, 1), (5, 7), (12, 20), (31, 9)])
def test_logits_are_resampled_as_by_pytorch(classes: int, size: tuple[int, int]) -> None:
    logits = torch.randn(classes, 6, 9, generator=torch.Generator().manual_seed(0))
    expected = torch.nn.functional.interpolate(logits[None], size, mode="bilinear")[0]
    np.testing.assert_allclose(resampled(logits.numpy(), size), expected.numpy(), rtol=0, atol=1e-5)
    np.testing.assert_array_equal(largest(logits.numpy(), size), _largest(logits, size).numpy())


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("size", [(40, 60), (61, 33), (10, 12)])
def test_images_are_prepared_as_for_evaluation(mode: str, size: tuple[int, int]) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (*size, 3), dtype=np.uint8)
    image = Image.fromarray(pixels).convert(mode)
    bands = len(image.getbands())
    mean, std = [0.4, 0.5, 0.6][:bands], [0.2, 0.3, 0.25][:bands]
    found = prepare_whole(image, {"mean": mean, "std": std, "long_side": 50, "short_side": 24})
    expected = ForEvaluation(mean, std, 50, 24).prepare(image).numpy()
    assert found.shape == expected.shape
    steps = np.abs(found - expected) * 255 * np.array(std)[:, None, None]
    assert steps.max() < 1.01  # one of 256 values
    assert (steps > 0.01).mean() < 0.1
