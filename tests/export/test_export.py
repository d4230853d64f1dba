"""A model as a file: what is in it, what it computes, and what is refused."""

import copy
import json
import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import tustin
from tests import own_rule
from tests.cli.commands import refused, told
from tustin.export import export, graph
from tustin.export.pooling import Pooling
from tustin.export.program import FACTS
from tustin.models.segmenter import Segmenter

onnx = pytest.importorskip("onnx")
onnx_inliner = pytest.importorskip("onnx.inliner")
onnxruntime = pytest.importorskip("onnxruntime")


def model(name: str = "vim_nano_patch4_32", **options: Any) -> Any:
    torch.manual_seed(0)
    made: Any = tustin.create_model(name, **{"depth": 2, "num_classes": 5, "discretization": "bil"} | options)
    made.pretrained_cfg["label_names"] = [f"sort {i}" for i in range(5)]
    return made


def answers(path: Path, images: torch.Tensor) -> torch.Tensor:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(["logits"], {"images": images.numpy()})[0])


def assert_same(found: torch.Tensor, made: Any, images: torch.Tensor) -> None:
    with torch.inference_mode():
        expected = made.eval()(images)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_onnx_of_any_size_says_the_block_once(tmp_path: Path) -> None:
    made, path = model(depth=3, global_pool="avg", discretization="zoh"), tmp_path / "model.onnx"
    facts = export(made, path, dynamic_size=True)
    assert facts["largest_error"] < 1e-4
    assert facts["blocks"] == 3
    assert facts["bytes"] == path.stat().st_size
    proto = onnx.load(path)
    assert {opset.domain: opset.version for opset in proto.opset_import} == {"": 18, "tustin": 1}
    assert [function.name for function in proto.functions] == ["block"]
    assert {node.domain for node in proto.functions[0].node} == {""}
    assert [node.op_type for node in proto.functions[0].node].count("Scan") == 2
    about = {entry.key: entry.value for entry in proto.metadata_props}
    assert about["discretization"] == "zoh"
    assert about["tustin"] == tustin.__version__
    assert json.loads(about["class_names"]) == [f"sort {i}" for i in range(5)]
    assert json.loads(about["input_size"]) == [3, 32, 32]
    assert {"mean", "std", "interpolation", "crop_pct", "crop_mode", "task"} <= set(about)
    for shape in ((1, 3, 32, 32), (5, 3, 48, 20)):
        images = torch.randn(shape)
        assert_same(answers(path, images), made, images)


def test_overlapping_patches_and_odd_batches(tmp_path: Path) -> None:
    made, path = model("vim_nano_patch4_stride2_8", in_chans=1, discretization="exptrap"), tmp_path / "model.onnx"
    export(made, path)
    for batch in (1, 2, 7):
        images = torch.randn(batch, 1, 8, 8)
        assert_same(answers(path, images), made, images)


def test_pytorch_exports_the_same_graph_by_itself(tmp_path: Path) -> None:
    """The operators bring their translation; only the blocks are not gathered into a function."""
    made, path = model().eval(), tmp_path / "model.onnx"
    export(made, path)
    with warnings.catch_warnings(action="ignore"), torch.no_grad():
        program = torch.onnx.export(
            made,
            (torch.randn(3, 3, 32, 32),),
            dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
            opset_version=18,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    inlined = onnx_inliner.inline_local_functions(onnx.load(path))
    assert _kinds(inlined) == _kinds(program.model_proto)


def _kinds(proto: Any) -> list[str]:
    return sorted(node.op_type for node in proto.graph.node if node.op_type != "Constant")


@pytest.mark.parametrize("dynamic_size", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_segmenter(dynamic_size: bool, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    vim = model("vim_tiny_patch16_224", depth=4, embed_dim=16, img_size=64)
    made, path = Segmenter(vim, 5), tmp_path / "model.onnx"
    assert export(made, path, dynamic_size=dynamic_size)["largest_error"] < 1e-4
    for shape in ((2, 3, 64, 64), (1, 3, 100, 70)) if dynamic_size else ((2, 3, 64, 64),):
        images = torch.randn(shape)
        assert_same(answers(path, images), made, images)


@pytest.mark.parametrize("bins", [1, 2, 3, 6])
@pytest.mark.parametrize("size", [(1, 1), (5, 7), (6, 6), (13, 4)])
def test_pooling_by_products(bins: int, size: tuple[int, int]) -> None:
    maps = torch.randn(2, 3, *size)
    torch.testing.assert_close(Pooling(bins)(maps), torch.nn.AdaptiveAvgPool2d(bins)(maps))


def test_a_program_of_torch(tmp_path: Path) -> None:
    made, path = model(), tmp_path / "model.pt2"
    facts = export(made, path, "torch", dynamic_size=True)
    assert facts["largest_error"] < 1e-4
    extra = {FACTS: ""}
    program: Any = torch.export.load(path, extra_files=extra).module()
    assert json.loads(extra[FACTS])["discretization"] == "bil"
    for shape in ((1, 3, 32, 32), (4, 3, 40, 52)):
        images = torch.randn(shape)
        assert_same(program(images), made, images)


def test_a_file_that_differs_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, path = model(depth=1), tmp_path / "model.onnx"
    path.write_text("what was there")
    translate = graph._translate

    def translate_another(made: Any, *more: Any) -> Any:
        assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]  # a kill leaves nothing behind
        other = copy.deepcopy(made)
        other.head.bias += 1
        return translate(other, *more)

    monkeypatch.setattr(graph, "_translate", translate_another)
    with pytest.raises(RuntimeError, match="the file is not written: for images of 3x3x32x32 onnxruntime differs"):
        export(made, path)
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]
    assert path.read_text() == "what was there"


def test_refused(tmp_path: Path) -> None:
    made = model(depth=1)
    with pytest.raises(ValueError, match="unknown format 'coreml'"):
        export(made, tmp_path / "model", "coreml")
    made.task = "detection"
    with pytest.raises(ValueError, match="a model for detection cannot be exported"):
        export(made, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "find_spec", lambda name: None if name == "onnxruntime" else object())
    with pytest.raises(RuntimeError, match=r"needs onnxruntime: pip install 'tustin\[onnx\]'; --no-check does without"):
        export(model(depth=1), tmp_path / "model.onnx")


@pytest.mark.usefixtures("clean_registry")
def test_a_rule_of_the_users_own_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (rule,) = tustin.discretize.import_rules(rules := own_rule.write(tmp_path))
    tustin.save(model(depth=1, discretization=rule.name), checkpoint := tmp_path / "own.safetensors")
    del tustin.DISCRETIZATIONS[rule.name]
    assert "name it with --import FILE" in refused(capsys, 1, "export", checkpoint)
    facts = told(capsys, "export", checkpoint, "--import", rules, "--no-check")
    properties = onnx.load(facts["file"]).metadata_props
    assert {entry.key: entry.value for entry in properties}["discretization"] == rule.name


@pytest.mark.long
@pytest.mark.parametrize("discretization", tustin.DISCRETIZATIONS)
@pytest.mark.parametrize("name", ["vim_nano_patch4_32", "vim_tiny_patch16_224"])
def test_every_rule_in_whole_models(name: str, discretization: str, tmp_path: Path) -> None:
    stable_for_all = math.isinf(tustin.DISCRETIZATIONS[discretization].stable[0])
    made: Any = tustin.create_model(
        name, discretization=discretization, dt_init_backward="vim" if stable_for_all else "mamba"
    )
    facts = export(made, tmp_path / "model.onnx")
    assert facts["blocks"] == len(made.layers)


def test_a_model_that_is_not_finite_is_not_compared(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"the model itself gives numbers that are not finite"):
        export(model(discretization="rk4_raw"), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())
