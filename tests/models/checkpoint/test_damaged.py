"""Damaged and hostile files: each is refused with a sentence, and nothing is executed."""

import json
import os
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import timm
import torch

import tustin
from tests.models.checkpoint.checkpoints import assert_same_state, nano, rewritten
from tustin.cli import main
from tustin.models import CheckpointError, describe
from tustin.models.checkpoint.reading import digest


class _Bomb:
    """A pickle that runs a command when it is opened."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return os.system, (f"touch '{self.target}'",)


@pytest.mark.parametrize("name", ["a.pth", "a.safetensors", "a.bin"])
@pytest.mark.parametrize("kind", ["zip", "legacy", "pickle"])
def test_a_file_that_would_run_code_is_refused_and_runs_nothing(tmp_path: Path, name: str, kind: str) -> None:
    path, trace = tmp_path / name, tmp_path / "it ran"
    content = {"model": nano().state_dict(), "args": _Bomb(trace)}
    if kind == "pickle":
        path.write_bytes(pickle.dumps(content["args"]))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=kind == "zip")
    for load in (lambda: tustin.load_checkpoint(nano(), path), lambda: tustin.load(path), lambda: describe(path)):
        with pytest.raises(CheckpointError) as caught:
            load()
        assert str(path) in str(caught.value)
        assert "nothing of it was executed" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert not trace.exists()
    if kind == "pickle":  # the bomb is real
        pickle.loads(path.read_bytes())
        assert trace.exists()


@pytest.mark.parametrize("kind", ["ours", "zip", "legacy"])
@pytest.mark.parametrize("share", [0, 0.001, 0.1, 0.5, 0.99, 0.9999])
def test_a_truncated_file_is_refused_with_one_sentence(tmp_path: Path, kind: str, share: float) -> None:
    path = tmp_path / "a.ckpt"
    _write(path, kind)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    _assert_refused(path)


@pytest.mark.parametrize("kind", ["ours", "zip"])
@pytest.mark.parametrize("share", [0, 0.0005, 0.3, 0.6, 0.95])
def test_a_corrupted_file_is_refused_with_one_sentence(tmp_path: Path, kind: str, share: float) -> None:
    path = tmp_path / "a.ckpt"
    _write(path, kind)
    content = bytearray(path.read_bytes())
    at = int(share * len(content))
    content[at : at + 64] = bytes(byte ^ 0x55 for byte in content[at : at + 64])
    path.write_bytes(content)
    _assert_refused(path)


def _write(path: Path, kind: str) -> None:
    model = nano(discretization="mamba")
    if kind == "ours":
        tustin.save(model, path)
    else:
        torch.save({"model": model.state_dict()}, path, _use_new_zipfile_serialization=kind == "zip")


def _assert_refused(path: Path) -> None:
    target = nano(discretization="mamba", num_classes=10)
    with pytest.raises(CheckpointError, match=re.escape(str(path))) as caught:
        tustin.load_checkpoint(target, path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert_same_state(target, nano(discretization="mamba"))


@pytest.mark.parametrize(
    "text", ["", "hello", "{}", "<html>not found</html>", "version https://git-lfs.github.com/spec/v1"]
)
def test_text_is_not_a_checkpoint(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.pth").write_text(text)
    with pytest.raises(CheckpointError, match=r"a\.pth is truncated, corrupted or not a checkpoint"):
        tustin.load_checkpoint(nano(), tmp_path / "a.pth")


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ("[]", "is refused because of its header: it must be a mapping"),
        ("{}", "is refused because of its header: it does not say format"),
        ('{"format": 1}', "is refused because of its header: it does not say tustin"),
        ("{", "is truncated, corrupted or not a checkpoint"),
        ("[" * 100_000, "is truncated, corrupted or not a checkpoint"),
    ],
)
def test_a_header_of_someone_else_is_refused(tmp_path: Path, told: str, why: str) -> None:
    safetensors.torch.save_file(nano().state_dict(), tmp_path / "a.safetensors", {"tustin": told})
    with pytest.raises(CheckpointError, match=rf"a\.safetensors {why}"):
        tustin.load(tmp_path / "a.safetensors")


HOSTILE: list[tuple[dict[str, Any], str]] = [
    ({"pretrained": True}, "unknown argument 'pretrained'"),
    ({"config": {"pretrained": True}}, r"unknown argument 'config\.pretrained'"),
    ({"config": {"checkpoint_path": "/etc/passwd"}}, r"unknown argument 'config\.checkpoint_path'"),
    ({"config": {"pretrained_cfg_overlay": {"file": "x"}}}, r"unknown argument 'config\.pretrained_cfg_overlay'"),
    ({"config": {"backend": "triton"}}, r"unknown argument 'config\.backend'"),
    ({"data": {"url": "http://localhost:1/x"}}, r"unknown argument 'data\.url'"),
    ({"data": {"file": "/etc/passwd"}}, r"unknown argument 'data\.file'"),
    ({"data": {"hf_hub_id": "somebody/model"}}, r"unknown argument 'data\.hf_hub_id'"),
    ({"data": {"crop_pct": 1e-9}}, r"data\.crop_pct must be a number from 0\.05 to 1, got 1e-09"),
    (
        {"config": {"img_size": [65536, 65536], "stride": 4096}, "data": {"input_size": [1, 65536, 65536]}},
        "images would be enlarged to 65536 x 65536 pixels, more than",
    ),
    ({"data": {"input_size": [1, 60000, 60000]}}, r"data\.input_size is .*, but the model is made for \[1, 8, 8\]"),
    ({"data": {"mean": [0.5, 0.5]}}, r"data\.mean has 2 values for 1 channels"),
    ({"architecture": "resnet18"}, "unknown architecture 'resnet18'"),
    ({"architecture": ["vim"]}, r"architecture must be text or null, got \['vim'\]"),
    ({"discretization": "foh"}, "it says discretization 'foh', but its config 'mamba'"),
    ({"config": {"depth": 100_000}}, r"config\.depth must be a whole number from 1 to 1000, got 100000"),
    ({"config": {"depth": 999}}, r"config\.depth is 999, but it holds 2 layers"),
    ({"config": {"embed_dim": 60_000}}, r"does not fit the model .*other shape"),
    ({"config": {"num_classes": 10_000_000}}, r"does not fit the model .*head\.weight|10000000"),
    ({"config": {"img_size": [4096, 4096]}, "data": {"input_size": [1, 4096, 4096]}}, "other shape.*pos_embed"),
    ({"config": {"d_state": 4096}}, r"does not fit the model .*A_log"),
    ({"config": {"img_size": 8}}, r"config\.img_size must be a list of 2 whole numbers"),
    ({"class_names": "0123456789"}, "class_names must be a list, each text or null"),
    ({"class_names": ["one"]}, "it has 1 class names for 10 classes"),
    ({"task": "colouring"}, "unknown task 'colouring'"),
    ({"metadata": 3}, "metadata must be a mapping, got 3"),
]


@pytest.mark.parametrize(("changes", "why"), HOSTILE)
@pytest.mark.parametrize("use", ["load", "describe", "load_checkpoint", "info", "predict"])
def test_a_header_asks_for_nothing_but_our_own_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, use: str, changes: dict[str, Any], why: str
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a header must not reach timm, the network or the disk")

    told = describe(rewritten(tmp_path))
    path = rewritten(
        tmp_path, **{name: told[name] | new if isinstance(new, dict) else new for name, new in changes.items()}
    )
    target = nano()
    monkeypatch.setattr(timm, "create_model", refuse)
    monkeypatch.setattr("socket.socket.connect", refuse)
    if use in ("info", "predict"):
        argv = ["info", path] if use == "info" else ["predict", path, "--checkpoint", path]
        assert main(list(map(str, argv))) == 1
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert re.search(f"a.safetensors is refused because of its header: .*({why})", err)
        return
    with pytest.raises(CheckpointError, match=rf"(?s)a\.safetensors is refused because of its header: .*({why})"):
        tustin.load_checkpoint(target, path) if use == "load_checkpoint" else getattr(tustin.models, use)(path)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float8_e5m2])
def test_tensors_that_are_no_weights(tmp_path: Path, dtype: torch.dtype) -> None:
    path = rewritten(tmp_path)
    told, tensors = describe(path), safetensors.torch.load_file(path)
    tensors["pos_embed"] = tensors["pos_embed"].to(dtype)
    told["sha256"] = digest(tensors)
    safetensors.torch.save_file(tensors, path, {"tustin": json.dumps(told)})
    with pytest.raises(CheckpointError, match=rf"its tensor pos_embed is of {dtype}"):
        tustin.load(path)


def test_other_contents_and_no_file(tmp_path: Path) -> None:
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(CheckpointError, match="holds a list, not the weights of a model"):
        tustin.load_checkpoint(nano(), tmp_path / "list.pth")
    with pytest.raises(FileNotFoundError):
        tustin.load_checkpoint(nano(), tmp_path / "none.pth")
    with pytest.raises(FileNotFoundError):
        tustin.load(tmp_path / "none.safetensors")
    with pytest.raises(FileNotFoundError):
        tustin.load_checkpoint(nano(), "folder/vim.pth")
