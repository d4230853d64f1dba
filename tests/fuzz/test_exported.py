"""Exported models from strangers, and models made into files: run, written, or refused with a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from PIL import Image

from .harness import cases, check
from .mutations import VALUES, mutated_bytes, mutated_value

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

ABOUT = {"tustin": "0", "discretization": "bil", "num_classes": 3, "class_names": ["a", "b", "c"], "mean": [0.5]}
ABOUT |= {"std": [0.5], "input_size": [3, 8, 8], "dynamic_size": False}
CLASSIFIER = ABOUT | {"task": "classification", "interpolation": "bicubic", "crop_pct": 0.9, "crop_mode": "center"}
SEGMENTER = ABOUT | {"task": "segmentation", "long_side": 16, "short_side": 16, "window": "slide", "window_stride": 4}
SEGMENTER |= {"unlabelled": 0}


def model(about: dict[str, Any]) -> Any:
    """The mean of the pixels as the logits of every class."""
    helper, number = onnx.helper, onnx.TensorProto
    segments = about["task"] == "segmentation"
    nodes = [
        helper.make_node("ReduceMean", ["images"], ["mean"], axes=[1] if segments else [1, 2, 3], keepdims=segments),
        helper.make_node("Concat", ["mean"] * 3, ["logits"], axis=1)
        if segments
        else helper.make_node("Expand", ["column", "shape"], ["logits"]),
    ]
    constants = []
    if not segments:
        nodes.insert(1, helper.make_node("Unsqueeze", ["mean", "one"], ["column"]))
        constants = [
            helper.make_tensor("shape", number.INT64, [2], [1, 3]),
            helper.make_tensor("one", number.INT64, [1], [1]),
        ]
    sides = ["height", "width"] if about["dynamic_size"] else about["input_size"][1:]
    images = helper.make_tensor_value_info("images", number.FLOAT, ["batch", 3, *sides])
    logits = helper.make_tensor_value_info("logits", number.FLOAT, ["batch", 3, *(sides if segments else [])])
    graph = helper.make_graph(nodes, "small", [images], [logits], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    say(made, about)
    return made


TEXTS = {name for name, value in {**CLASSIFIER, **SEGMENTER}.items() if isinstance(value, str)}


def say(made: Any, about: dict[str, Any]) -> None:
    """Put what the metadata say in the place of what they said."""
    del made.metadata_props[:]
    for name, value in about.items():
        text = value if name in TEXTS and isinstance(value, str) else json.dumps(value)
        made.metadata_props.add(key=name, value=text)


def changed_graph(random: Random, made: Any) -> None:
    """A name, a size or a kind of the graph is another one."""
    graph = made.graph
    node = random.choice(graph.node)
    match random.randrange(6):
        case 0:
            node.op_type = random.choice(["Loop", "Resize", "Relu", "NoSuchOperator", "", "RandomNormal"])
        case 1:
            node.input[0] = random.choice(["", "images", "nowhere", "logits"])
        case 2:
            value = random.choice([*graph.input, *graph.output])
            random.choice(value.type.tensor_type.shape.dim).dim_value = random.choice([0, -1, 7, 2**40])
        case 3:
            random.choice([*graph.input, *graph.output]).type.tensor_type.elem_type = random.choice([0, 1, 7, 8, 99])
        case 4 if graph.initializer:  # numbers that lie in another file
            tensor = graph.initializer[0]
            tensor.data_location = onnx.TensorProto.EXTERNAL
            tensor.ClearField("int64_data")
            tensor.external_data.add(key="location", value=random.choice(["/etc/passwd", "../x", "photo.png"]))
        case _:
            made.opset_import[0].version = random.choice([0, 1, 13, 99])


@pytest.fixture(scope="module")
def photo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("photos") / "photo.png"
    Image.effect_noise((20, 14), 50).convert("RGB").save(path)
    return path


def test_the_models_are_in_order(photo: Path, tmp_path: Path) -> None:
    for about in (CLASSIFIER, SEGMENTER | {"dynamic_size": True}):
        (tmp_path / "model.onnx").write_bytes(model(about).SerializeToString())
        assert check(["predict", str(photo), "--checkpoint", "model.onnx"], tmp_path, "the original") == 0


def test_onnx_files(photo: Path) -> None:
    for random, folder, told in cases("onnx"):
        about = random.choice([CLASSIFIER, SEGMENTER]) | {"dynamic_size": random.random() < 0.7}
        made, content = model(about), b""
        match random.randrange(5):
            case 0:
                content = mutated_bytes(random, made.SerializeToString())
            case 1:
                changed_graph(random, made)
            case 2:
                about[random.choice(sorted(about))] = random.choice(VALUES)
                say(made, about)
            case _:
                say(made, mutated_value(random, about))
        (folder / "model.onnx").write_bytes(content or made.SerializeToString())
        command = ["predict", str(photo), "--checkpoint", "model.onnx", *random.choice([[], ["--json"]])]
        check(command, folder, told)
