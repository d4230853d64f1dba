"""Weights of others: what may be adapted is, and what does not fit is refused with a sentence."""

from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

import tustin
from tests.models.checkpoint.checkpoints import assert_same_state, nano, official
from tests.models.test_vim import build, images
from tustin.models import CheckpointError


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
    with pytest.raises(CheckpointError, match=r"does not name its model.*tustin\.load_checkpoint"):
        tustin.load(tmp_path / "bare.safetensors")


def test_another_number_of_classes_resets_the_head_and_says_so(tmp_path: Path) -> None:
    source = build(discretization="mamba", num_classes=10)
    path = official(tmp_path / "vim.pth", source)
    target = build(seed=3, discretization="mamba", num_classes=4)
    trained_head = target.head.weight.clone()
    with pytest.warns(
        UserWarning, match=r"vim\.pth: the head is initialised anew: 10 classes in the file, 4 in the model"
    ):
        report = tustin.load_checkpoint(target, path)
    assert report.changes == ("the head is initialised anew: 10 classes in the file, 4 in the model",)
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
