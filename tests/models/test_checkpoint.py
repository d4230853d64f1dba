"""Checkpoints: what is saved comes back, what does not fit is refused with a sentence, and nothing is executed."""

import argparse
import json
import os
import pickle
import re
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import safetensors.torch
import timm
import torch
from timm.data import resolve_model_data_config
from torch import Tensor

import tustin
from tests.models.test_vim import build, images
from tustin import DISCRETIZATIONS
from tustin.cli import main
from tustin.models import CheckpointError, VisionMamba, describe, resample_pos_embed
from tustin.models.weights import digest

Model = VisionMamba
TINY = "vim_tiny_patch16_224"


def nano(**kwargs: Any) -> Any:
    torch.manual_seed(0)
    return tustin.create_model("vim_nano_patch2_8", **{"depth": 2} | kwargs).eval()


def official(path: Path, model: Model, **more: Any) -> Path:
    """A file as the authors' training script writes it."""
    arguments = argparse.Namespace(model="vim_tiny", lr=5e-4)
    torch.save({"model": model.state_dict(), "optimizer": {}, "epoch": 299, "args": arguments, **more}, path)
    return path


def assert_same_state(one: torch.nn.Module, other: torch.nn.Module) -> None:
    expected = other.state_dict()
    assert list(one.state_dict()) == list(expected)
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, expected[name]), name
        assert tensor.dtype == expected[name].dtype


# --- ours -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("discretization", DISCRETIZATIONS)
def test_round_trip(tmp_path: Path, discretization: str) -> None:
    model = nano(discretization=discretization)
    tustin.save(model, tmp_path / "a.safetensors")
    before = torch.random.get_rng_state()
    torch.manual_seed(5)
    loaded = tustin.load(tmp_path / "a.safetensors")
    torch.random.set_rng_state(before)
    assert not loaded.training
    assert loaded.config == model.config
    assert loaded.layers[0].mixer.discretization == discretization
    assert_same_state(loaded, model)
    if discretization != "rk4_raw":  # whose state overflows
        assert torch.equal(loaded(images(model)), model(images(model)))


def test_a_model_made_from_the_class(tmp_path: Path) -> None:
    model = build(img_size=(8, 12), discretization="zoh")
    tustin.save(model.train(), tmp_path / "a.safetensors")
    loaded = tustin.load(tmp_path / "a.safetensors")
    assert_same_state(loaded, model)
    assert loaded.config == model.config
    assert all(p.requires_grad for p in loaded.parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_dtype_comes_back(tmp_path: Path, dtype: torch.dtype) -> None:
    model = nano().to(dtype)
    tustin.save(model, tmp_path / "a.safetensors")
    assert_same_state(tustin.load(tmp_path / "a.safetensors"), model)


def test_what_the_file_says_about_itself(tmp_path: Path) -> None:
    path, names = tmp_path / "a.safetensors", [f"digit {i}" for i in range(10)]
    tustin.save(nano(discretization="zoh"), path, class_names=names, metadata={"epoch": 7, "accuracy": 0.5})
    told = describe(path)
    assert told["architecture"] == "vim_nano_patch2_8"
    assert told["discretization"] == told["config"]["discretization"] == "zoh"
    assert told["tustin"] == tustin.__version__
    assert told["class_names"] == names
    assert told["metadata"] == {"epoch": 7, "accuracy": 0.5}
    assert told["data"]["input_size"] == [1, 8, 8]
    assert told["data"]["mean"] == told["data"]["std"] == [0.5]
    assert list(safetensors.torch.load_file(path)) == sorted(nano().state_dict())


def test_data_config_and_class_names_survive_two_rounds(tmp_path: Path) -> None:
    model = timm.create_model(
        TINY,
        depth=1,
        img_size=(64, 96),
        num_classes=2,
        pretrained_cfg_overlay={"mean": (0.1, 0.2, 0.3), "crop_pct": 1.0},
    )
    tustin.save(model, tmp_path / "a.safetensors", class_names=["cat", "dog"])
    loaded = tustin.load(tmp_path / "a.safetensors")
    assert resolve_model_data_config(loaded) == resolve_model_data_config(model)
    tustin.save(loaded, tmp_path / "b.safetensors")
    assert describe(tmp_path / "b.safetensors")["class_names"] == ["cat", "dog"]
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def test_wrappers_are_taken_off(tmp_path: Path) -> None:
    model = nano()
    tustin.save(torch.nn.DataParallel(model), tmp_path / "a.safetensors")
    assert_same_state(tustin.load(tmp_path / "a.safetensors"), model)
    with pytest.raises(ValueError, match="expected a VisionMamba, got Linear"):
        tustin.save(torch.nn.Linear(2, 2), tmp_path / "b.safetensors")


def test_overrides(tmp_path: Path) -> None:
    model = nano()
    tustin.save(model, tmp_path / "a.safetensors", class_names=list("0123456789"))
    wide = tustin.load(tmp_path / "a.safetensors", img_size=(4, 12), drop_path_rate=0.5)
    assert wide.patch_embed.grid_size == (2, 6)
    assert torch.equal(wide.pos_embed, resample_pos_embed(model.pos_embed, (4, 4), (2, 6)))
    with pytest.warns(UserWarning, match="the head starts anew: 10 classes in the file, 3 in the model"):
        other = tustin.load(tmp_path / "a.safetensors", num_classes=3)
    assert other.pretrained_cfg.get("label_names") is None
    assert other(images(model)).shape == (2, 3)
    assert tustin.load(tmp_path / "a.safetensors", num_classes=0).num_classes == 0


def test_another_grid_of_as_many_patches_is_resampled(tmp_path: Path) -> None:
    model = nano(img_size=(4, 16))
    tustin.save(model, tmp_path / "a.safetensors")
    loaded = tustin.load(tmp_path / "a.safetensors", img_size=8)
    assert torch.equal(loaded.pos_embed, resample_pos_embed(model.pos_embed, (2, 8), (4, 4)))


def test_wrong_names_and_metadata_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="2 class names were given for a model of 10 classes"):
        tustin.save(nano(), tmp_path / "a.safetensors", class_names=["one", "two"])
    with pytest.raises(ValueError, match="metadata must be plain values"):
        tustin.save(nano(), tmp_path / "a.safetensors", metadata={"model": object()})
    assert os.listdir(tmp_path) == []


def test_a_full_disk_keeps_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "a.safetensors"
    tustin.save(nano(), path)
    before = path.read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"cannot write .*a\.safetensors': No space left on device"):
        tustin.save(build(), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.safetensors"]


def test_a_file_of_a_later_version_is_refused(tmp_path: Path) -> None:
    path = rewritten(tmp_path, format=2, tustin="9.0")
    with pytest.raises(CheckpointError, match=r"written by a newer version, tustin 9\.0"):
        tustin.load(path)


def test_an_unknown_architecture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        CheckpointError, match=r"unknown architecture 'vim_nano_patch2_9' \(did you mean 'vim_nano_patch2"
    ):
        tustin.load(rewritten(tmp_path, architecture="vim_nano_patch2_9"))


def rewritten(folder: Path, **changes: Any) -> Path:
    path = folder / "a.safetensors"
    tustin.save(nano(), path)
    told = describe(path) | changes
    safetensors.torch.save_file(safetensors.torch.load_file(path), path, {"tustin": json.dumps(told)})
    return path


# --- the guard --------------------------------------------------------------------------------------------------------


def test_another_discretization_is_refused_unless_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    tustin.save(nano(discretization="zoh"), path)
    sentence = r"trained with discretization 'zoh', but the model has 'bil'.*allow_other_discretization=True"
    with pytest.raises(CheckpointError, match=sentence):
        tustin.load(path, discretization="bil")
    target = nano()
    before = {name: tensor.clone() for name, tensor in target.state_dict().items()}
    with pytest.raises(CheckpointError, match=sentence):
        tustin.load_checkpoint(target, path)
    assert all(torch.equal(tensor, before[name]) for name, tensor in target.state_dict().items())
    with pytest.raises(CheckpointError, match=sentence):
        tustin.create_model("vim_nano_patch2_8", depth=2, checkpoint_path=path)

    model = tustin.load(path, discretization="bil", allow_other_discretization=True)
    assert model.layers[1].mixer.discretization == "bil"
    report = tustin.load_checkpoint(target, path, allow_other_discretization=True)
    assert report.discretization == "zoh"
    assert report.changes == ("trained with 'zoh', but the model runs with 'bil'",)
    tustin.create_model("vim_nano_patch2_8", depth=2, checkpoint_path=path, allow_other_discretization=True)


def test_official_files_are_of_mamba(tmp_path: Path) -> None:
    source = nano(discretization="mamba")
    path = official(tmp_path / "vim.pth", source)
    with pytest.raises(
        CheckpointError, match=r"is taken for an official file, of discretization 'mamba', but .* 'bil'"
    ):
        tustin.load_checkpoint(nano(), path)
    model = nano(discretization="mamba", img_size=8)
    report = tustin.load_checkpoint(model, path)
    assert_same_state(model, source)
    assert report.changes == ()
    assert str(report) == f"loaded {path}, trained with 'mamba'"


# --- files of others --------------------------------------------------------------------------------------------------


def test_entries_and_prefixes(tmp_path: Path) -> None:
    model, average = (
        nano(discretization="mamba"),
        build(**nano(discretization="mamba").config),
    )
    path = official(tmp_path / "vim.pth", model, model_ema=average.state_dict())
    target = nano(discretization="mamba")
    tustin.load_checkpoint(target, path)
    assert_same_state(target, model)
    tustin.load_checkpoint(target, path, entry="model_ema")
    assert_same_state(target, average)
    with pytest.raises(
        CheckpointError, match=r"no weights under 'ema'; it holds 'model', 'optimizer', 'epoch', 'args'"
    ):
        tustin.load_checkpoint(target, path, entry="ema")
    for content in (
        model.state_dict(),
        {"model_ema": model.state_dict()},
        {"state_dict": {f"module.{name}": tensor for name, tensor in model.state_dict().items()}},
    ):
        torch.save(content, path)
        tustin.load_checkpoint(target, path)
        assert_same_state(target, model)
    safetensors.torch.save_file(average.state_dict(), tmp_path / "bare.safetensors")
    tustin.load_checkpoint(target, tmp_path / "bare.safetensors")
    assert_same_state(target, average)
    with pytest.raises(CheckpointError, match=r"does not say which model it is of.*tustin\.load_checkpoint"):
        tustin.load(tmp_path / "bare.safetensors")


def test_another_number_of_classes_resets_the_head_and_says_so(tmp_path: Path) -> None:
    source = build(discretization="mamba", num_classes=10)
    path = official(tmp_path / "vim.pth", source)
    target = build(seed=3, discretization="mamba", num_classes=4)
    trained_head = target.head.weight.clone()
    with pytest.warns(UserWarning, match=r"vim\.pth: the head starts anew: 10 classes in the file, 4 in the model"):
        report = tustin.load_checkpoint(target, path)
    assert report.changes == ("the head starts anew: 10 classes in the file, 4 in the model",)
    assert not torch.equal(target.head.weight, trained_head)
    assert target.head.weight.std() < 0.1
    assert not target.head.bias.any()
    assert torch.equal(target.forward_features(images(target)), source.forward_features(images(source)))
    without = build(discretization="mamba", num_classes=0)
    assert tustin.load_checkpoint(without, path).changes == ("the head is left out",)
    headless = official(tmp_path / "headless.pth", without)
    with pytest.warns(UserWarning, match="0 classes in the file, 4 in the model"):
        tustin.load_checkpoint(target, headless)


@pytest.mark.parametrize(("size", "grid"), [((8, 24), (2, 6)), ((20, 12), (5, 3)), ((4, 4), (1, 1))])
def test_positions_are_resampled_with_the_class_token_in_the_middle(tmp_path: Path, size: Any, grid: Any) -> None:
    source = build(discretization="mamba", img_size=12, patch_size=4)
    with torch.no_grad():  # a ramp along the rows, and a class token that nothing else looks like
        rows = torch.arange(3.0).repeat_interleave(3)[None, :, None].expand(-1, -1, source.embed_dim)
        source.pos_embed.copy_(torch.cat((rows[:, :4], torch.full_like(rows[:, :1], 99.0), rows[:, 4:]), dim=1))
    path = official(tmp_path / "vim.pth", source)
    target = build(discretization="mamba", img_size=size, patch_size=4)
    report = tustin.load_checkpoint(target, path)
    assert report.changes == (f"position embeddings resampled from 3 x 3 patches to {grid[0]} x {grid[1]}",)
    middle = grid[0] * grid[1] // 2
    assert (target.pos_embed[:, middle] == 99).all()
    patches: Tensor = torch.cat((target.pos_embed[:, :middle], target.pos_embed[:, middle + 1 :]), dim=1)
    assert patches.max() < 3
    down = patches.unflatten(1, grid)
    assert (down.diff(dim=1) > 0).all()
    torch.testing.assert_close(down, down[:, :, :1].expand_as(down))


def test_a_grid_that_cannot_be_known_has_to_be_given(tmp_path: Path) -> None:
    sizes = {"discretization": "mamba", "patch_size": 4}
    oblong = official(tmp_path / "oblong.pth", build(img_size=(8, 12), **sizes))
    with pytest.raises(CheckpointError, match=r"6 patches and does not say in which grid; pass grid=\(height, width\)"):
        tustin.load_checkpoint(build(img_size=16, **sizes), oblong)
    assert tustin.load_checkpoint(build(img_size=16, **sizes), oblong, grid=(2, 3)).changes
    assert not tustin.load_checkpoint(build(img_size=(8, 12), **sizes), oblong).changes
    square = official(tmp_path / "square.pth", build(img_size=8, **sizes))  # 2 x 2, or 1 x 4?
    with pytest.raises(CheckpointError, match="does not say in which grid"):
        tustin.load_checkpoint(build(img_size=(4, 16), **sizes), square)


def test_channels_are_adapted(tmp_path: Path) -> None:
    path = official(tmp_path / "vim.pth", build(discretization="mamba", in_chans=3))
    report = tustin.load_checkpoint(build(discretization="mamba", in_chans=1), path)
    assert report.changes == ("patch embedding adapted from 3 channels to 1",)


def test_what_does_not_fit_is_reported_with_the_nearest_names(tmp_path: Path) -> None:
    model = nano(discretization="mamba")
    state = model.state_dict()
    state["layers.0.mixer.A_logs"] = state.pop("layers.0.mixer.A_log")
    del state["layers.1.mixer.D"]
    state["norm_f.weight"] = state["norm_f.weight"][:-1]
    torch.save({"model": state}, tmp_path / "vim.pth")
    with pytest.raises(CheckpointError) as caught:
        tustin.load_checkpoint(model, tmp_path / "vim.pth")
    assert str(caught.value).splitlines()[1:] == [
        "  missing, 2 of them: layers.0.mixer.A_log (the file has layers.0.mixer.A_logs); layers.1.mixer.D",
        "  unexpected, 1 of them: layers.0.mixer.A_logs",
        "  other shape, 1 of them: norm_f.weight is (63,) in the file, (64,) in the model",
    ]


def test_a_model_of_another_size_gets_a_short_report(tmp_path: Path) -> None:
    path = official(tmp_path / "vim.pth", nano(discretization="mamba"))
    with pytest.raises(CheckpointError, match=r"missing, 51 of them: .*; …") as caught:
        tustin.load_checkpoint(nano(discretization="mamba", depth=5), path)
    assert len(str(caught.value)) < 500


# --- damaged and hostile files ----------------------------------------------------------------------------------------


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
        ("[]", "is refused for what its header says: it must be a mapping"),
        ("{}", "is refused for what its header says: it does not say format"),
        ('{"format": 1}', "is refused for what its header says: it does not say tustin"),
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
    ({"data": {"input_size": [1, 60000, 60000]}}, r"data\.input_size is .*, but the model is made for \[1, 8, 8\]"),
    ({"data": {"mean": [0.5, 0.5]}}, r"data\.mean has 2 values for 1 channels"),
    ({"architecture": "resnet18"}, "unknown architecture 'resnet18'"),
    ({"architecture": ["vim"]}, r"architecture must be text or null, got \['vim'\]"),
    ({"discretization": "foh"}, "it says discretization 'foh', but its config 'bil'"),
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
        assert re.search(f"a.safetensors is refused for what its header says: .*({why})", err)
        return
    with pytest.raises(CheckpointError, match=rf"(?s)a\.safetensors is refused for what its header says: .*({why})"):
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


# --- the hub ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Repositories that exist here only: name → file → path. `asked` has what was downloaded."""
    kept: dict[str, Any] = {"asked": []}

    def download(repository: str, filename: str, cache_dir: Any = None) -> str:
        kept["asked"].append((repository, filename))
        return str(kept[repository][filename])

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.setattr(huggingface_hub, "list_repo_files", lambda repository: list(kept[repository]))
    return kept


def test_from_the_hub(tmp_path: Path, hub: dict[str, Any]) -> None:
    source, target = nano(discretization="mamba"), nano(discretization="mamba")
    path = official(tmp_path / "vim.pth", source)
    safe = tmp_path / "vim.safetensors"
    safetensors.torch.save_file(source.state_dict(), safe)
    hub["me/one"] = {"README.md": None, "vim.pth": path}
    hub["me/both"] = {"vim.pth": path, "vim.safetensors": safe}
    hub["me/two"] = {"a.pth": path, "b.pth": path}
    hub["me/none"] = {"README.md": None}
    tustin.load_checkpoint(target, "me/one")
    assert_same_state(target, source)
    tustin.load_checkpoint(target, "me/both")
    assert hub["asked"] == [("me/one", "vim.pth"), ("me/both", "vim.safetensors")]
    with pytest.raises(
        CheckpointError, match=r"me/two has several checkpoints, choose one by filename=: a\.pth, b\.pth"
    ):
        tustin.load_checkpoint(target, "me/two")
    tustin.load_checkpoint(target, "me/two", filename="b.pth")
    with pytest.raises(CheckpointError, match="me/none has no file that ends in"):
        tustin.load_checkpoint(target, "me/none")


@pytest.mark.parametrize(
    ("name", "repository", "filename"),
    [
        (TINY, "hustvl/Vim-tiny-midclstok", "vim_t_midclstok_76p1acc.pth"),
        ("vim_tiny_patch16_stride8_224", "hustvl/Vim-tiny-midclstok", "vim_t_midclstok_ft_78p3acc.pth"),
    ],
)
def test_pretrained(tmp_path: Path, hub: dict[str, Any], name: str, repository: str, filename: str) -> None:
    torch.manual_seed(0)
    source: Any = tustin.create_model(name, depth=1, discretization="mamba")
    hub[repository] = {filename: official(tmp_path / filename, source), "another.pth": None}
    model: Any = timm.create_model(name, pretrained=True, depth=1, discretization="mamba")
    assert_same_state(model, source)
    tustin.load_checkpoint(model, repository)
    assert hub["asked"] == 2 * [(repository, filename)]
    with pytest.warns(UserWarning, match="the head starts anew: 1000 classes in the file, 5 in the model"):
        timm.create_model(name, pretrained=True, depth=1, discretization="mamba", num_classes=5)
    features = timm.create_model(
        name, pretrained=True, depth=1, discretization="mamba", features_only=True, out_indices=[0]
    )
    assert torch.equal(features.model.layers[0].mixer.A_log, source.layers[0].mixer.A_log)


@pytest.mark.parametrize("create", [timm.create_model, tustin.create_model])
def test_pretrained_with_another_discretization_is_refused_before_a_download(
    tmp_path: Path, hub: dict[str, Any], create: Any
) -> None:
    for arguments in ({}, {"discretization": "zoh"}):
        with pytest.raises(CheckpointError, match=r"mamba.*allow_other_discretization=True"):
            create(TINY, pretrained=True, depth=1, **arguments)
    assert hub["asked"] == []
    path = official(tmp_path / "vim.pth", tustin.create_model(TINY, depth=1))
    hub["hustvl/Vim-tiny-midclstok"] = {"vim_t_midclstok_76p1acc.pth": path}
    model = create(TINY, pretrained=True, depth=1, allow_other_discretization=True)
    assert model.config["discretization"] == "bil"
    assert model.pretrained_cfg["architecture"] == TINY


def test_pretrained_from_a_file_of_ours(tmp_path: Path) -> None:
    source = nano()
    tustin.save(source, tmp_path / "a.safetensors")
    overlay = {"file": str(tmp_path / "a.safetensors")}
    model = timm.create_model("vim_nano_patch2_8", depth=2, pretrained=True, pretrained_cfg_overlay=overlay)
    assert_same_state(model, source)


def test_no_network_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise ConnectionError("[Errno -2] Name or service not known. And a page\nof advice.")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fail)
    monkeypatch.setattr(huggingface_hub, "list_repo_files", fail)
    with pytest.raises(CheckpointError) as caught:
        tustin.load_checkpoint(nano(), "hustvl/Vim-tiny-midclstok")
    assert str(caught.value) == (
        "there is no file 'hustvl/Vim-tiny-midclstok', and the Hugging Face hub did not give it (ConnectionError: "
        "[Errno -2] Name or service not known); without a network, give the path of a downloaded file"
    )
