"""`tustin predict` of an ONNX file: the same answers as of the checkpoint, and a sentence for what is none."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data import create_transform

import tustin
from tustin.predict.onnx_file import open_onnx
from tustin.predict.preparation import prepare

from ..cli.commands import refused, told

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint, the same as ONNX, and an image."""
    folder = tmp_path_factory.mktemp("files")
    torch.manual_seed(0)
    model = tustin.create_model("vim_nano_patch4_32", depth=1, num_classes=7, discretization="zoh")
    tustin.save(model, folder / "best.safetensors", class_names=[f"sort {i}" for i in range(7)])
    pixels = np.random.default_rng(0).integers(0, 255, (40, 60, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(folder / "photo.png")
    return folder


def test_from_a_run_to_a_file_to_an_answer(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = told(capsys, "export", files, "--out", files / "model.onnx")
    assert facts["format"] == "onnx"
    from_checkpoint = told(capsys, "predict", files / "photo.png", "--checkpoint", files, "--top", 3)
    from_onnx = told(capsys, "predict", files / "photo.png", "--checkpoint", files / "model.onnx", "--top", 3)
    assert from_onnx["discretization"] == from_checkpoint["discretization"] == "zoh"
    for found, expected in zip(from_onnx["images"][0]["top"], from_checkpoint["images"][0]["top"], strict=True):
        assert found["name"] == expected["name"]
        assert found["probability"] == pytest.approx(expected["probability"], rel=1e-4)

    script = "import sys; from tustin.cli import main; code = main(sys.argv[1:]); print('tustin.models' in sys.modules)"
    argv = ["predict", str(files / "photo.png"), "--checkpoint", str(files / "model.onnx")]
    done = subprocess.run([sys.executable, "-c", script, *argv], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("False\n")

    wrong = "predict", files / "photo.png", "--checkpoint", files / "model.onnx", "--task", "detection"
    assert "is a model for classification, not for detection" in refused(capsys, 1, *wrong)


@pytest.mark.parametrize("content", [b"", b"no protobuf", bytes(range(256)) * 40])
def test_what_is_no_onnx_file(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is damaged or not an ONNX file"):
        open_onnx(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tustin": None}, "was not written by 'tustin export'"),
        ({"task": "detection"}, "unknown task 'detection'"),
        ({"task": "segmentation"}, "it does not say long_side"),
        ({"crop_pct": "7"}, "crop_pct"),
        ({"mean": "[0.5, 0.5]"}, "mean has 2 values for 3 channels"),
        ({"class_names": '["a"]'}, "it has 1 class names for 2 classes"),
        ({"input_size": "[" * 9999}, "is refused because of its metadata"),
        ({"std": None}, "it does not say std"),
        ({"input_size": "[3, 65536, 65536]"}, "images would be enlarged to 65536 x 65536 pixels"),
        ({"input_size": "[3, 3000, 3000]", "crop_pct": "0.05"}, "enlarged to 60000 x 60000 pixels"),
    ],
)
def test_what_the_metadata_may_not_say(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    about = {"tustin": "0", "task": "classification", "discretization": "bil", "interpolation": "bicubic"}
    facts = {"num_classes": 2, "class_names": None, "input_size": [3, 4, 4], "mean": [0.5], "std": [0.5]}
    facts |= {"crop_pct": 1, "dynamic_size": False}
    about |= {"crop_mode": "center", **{name: json.dumps(value) for name, value in facts.items()}} | changes
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [None, 3, 4, 4])
    other = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [None, 3, 4, 4])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "g", [value], [other])
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    onnx.helper.set_model_props(proto, {name: text for name, text in about.items() if text is not None})
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    with pytest.raises(ValueError, match=message):
        open_onnx(path)


@pytest.mark.parametrize("crop_mode", ["center", "squash", "border"])
@pytest.mark.parametrize("size", [(24, 24), (20, 32)])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_images_are_prepared_as_by_timm(crop_mode: str, size: tuple[int, int], mode: str) -> None:
    channels = len(Image.new(mode, (1, 1)).getbands())
    facts = {"mean": [0.4, 0.5, 0.6][:channels], "std": [0.2, 0.3, 0.25][:channels], "interpolation": "bicubic"}
    facts |= {"input_size": [channels, *size], "crop_pct": 0.9, "crop_mode": crop_mode}
    for shape in ((40, 60, 3), (61, 33, 3), (10, 12, 3)):
        pixels = np.random.default_rng(0).integers(0, 255, shape, dtype=np.uint8)
        image = Image.fromarray(pixels).convert(mode)
        expected = create_transform(**facts | {"input_size": tuple(facts["input_size"])})(image)
        np.testing.assert_allclose(prepare(image, facts), expected.numpy(), rtol=0, atol=1e-6)
