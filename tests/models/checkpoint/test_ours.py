"""Checkpoints of ours: what is saved comes back, and another discretization is refused."""

import os
from pathlib import Path

import pytest
import safetensors.torch
import timm
import torch
from timm.data import resolve_model_data_config

import tustin
from tests.models.checkpoint.checkpoints import assert_same_state, nano, official, rewritten
from tests.models.test_vim import build, images
from tests.systems import FUSED
from tustin.models import CheckpointError, describe, resample_pos_embed


@pytest.mark.parametrize("discretization", FUSED)
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
        "vim_tiny_patch16_224",
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
    with pytest.warns(UserWarning, match="the head is initialised anew: 10 classes in the file, 3 in the model"):
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


# --- the guard --------------------------------------------------------------------------------------------------------


def test_another_discretization_is_refused_unless_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    tustin.save(nano(discretization="zoh"), path)
    sentence = r"trained with discretization 'zoh', but the model has 'bil'.*allow_other_discretization=True"
    with pytest.raises(CheckpointError, match=sentence):
        tustin.load(path, discretization="bil")
    target = nano(discretization="bil")
    before = {name: tensor.clone() for name, tensor in target.state_dict().items()}
    with pytest.raises(CheckpointError, match=sentence):
        tustin.load_checkpoint(target, path)
    assert all(torch.equal(tensor, before[name]) for name, tensor in target.state_dict().items())
    with pytest.raises(CheckpointError, match=sentence):
        tustin.create_model("vim_nano_patch2_8", depth=2, discretization="bil", checkpoint_path=path)

    model = tustin.load(path, discretization="bil", allow_other_discretization=True)
    assert model.layers[1].mixer.discretization == "bil"
    report = tustin.load_checkpoint(target, path, allow_other_discretization=True)
    assert report.discretization == "zoh"
    assert report.changes == ("trained with 'zoh', but the model runs with 'bil'",)
    tustin.create_model("vim_nano_patch2_8", depth=2, checkpoint_path=path, allow_other_discretization=True)  # mamba


def test_lambda_is_of_one_rule(tmp_path: Path) -> None:
    plain, mixed = tmp_path / "zoh.safetensors", tmp_path / "exptrap.safetensors"
    tustin.save(nano(discretization="zoh"), plain)
    tustin.save(nano(discretization="exptrap"), mixed)
    for path, other, words in ((plain, "exptrap", "are those of the model"), (mixed, "zoh", "were left out")):
        report = tustin.load_checkpoint(nano(discretization=other), path, allow_other_discretization=True)
        assert [words in change for change in report.changes] == [False, True]


def test_official_files_are_of_mamba(tmp_path: Path) -> None:
    source = nano(discretization="mamba")
    path = official(tmp_path / "vim.pth", source)
    with pytest.raises(
        CheckpointError, match=r"is taken for an official file, of discretization 'mamba', but .* 'bil'"
    ):
        tustin.load_checkpoint(nano(discretization="bil"), path)
    model = nano(discretization="mamba", img_size=8)
    report = tustin.load_checkpoint(model, path)
    assert_same_state(model, source)
    assert report.changes == ()
    assert str(report) == f"loaded {path}, trained with 'mamba'"
