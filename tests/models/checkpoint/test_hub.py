"""Weights of the Hugging Face hub, with its downloads replaced."""

from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import safetensors.torch
import timm
import torch

import tustin
from tests.models.checkpoint.checkpoints import assert_same_state, nano, official
from tustin.models import CheckpointError
from tustin.models.checkpoint import hub as hub_module

TINY = "vim_tiny_patch16_224"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Repositories that exist here only: name → file → path. `asked` has what was downloaded."""
    kept: dict[str, Any] = {"asked": []}

    def download(repository: str, filename: str, **about: Any) -> str:
        kept["asked"].append((repository, filename))
        return str(kept[repository][filename])

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.setattr(huggingface_hub, "list_repo_files", lambda repository, revision: list(kept[repository]))
    monkeypatch.setattr(hub_module, "_no_answer", lambda: None)
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
    source: Any = tustin.create_model(name, depth=1)
    hub[repository] = {filename: official(tmp_path / filename, source), "another.pth": None}
    model: Any = timm.create_model(name, pretrained=True, depth=1)
    assert_same_state(model, source)
    tustin.load_checkpoint(model, repository)
    assert hub["asked"] == 2 * [(repository, filename)]
    with pytest.warns(UserWarning, match="the head is initialised anew: 1000 classes in the file, 5 in the model"):
        timm.create_model(name, pretrained=True, depth=1, num_classes=5)
    features = timm.create_model(name, pretrained=True, depth=1, features_only=True, out_indices=[0])
    assert torch.equal(features.model.layers[0].mixer.A_log, source.layers[0].mixer.A_log)


def test_pretrained_needs_nothing_but_the_name(tmp_path: Path, hub: dict[str, Any]) -> None:
    source: Any = tustin.create_model(TINY)
    path = official(tmp_path / "vim.pth", source)
    hub["hustvl/Vim-tiny-midclstok"] = {"vim_t_midclstok_76p1acc.pth": path}
    model: Any = timm.create_model("vim_tiny_patch16_224", pretrained=True)
    assert_same_state(model, source)
    assert model.config["discretization"] == "mamba"


@pytest.mark.parametrize("create", [timm.create_model, tustin.create_model])
def test_pretrained_with_another_discretization_is_refused_before_a_download(
    tmp_path: Path, hub: dict[str, Any], create: Any
) -> None:
    other = {"depth": 1, "discretization": "zoh"}
    with pytest.raises(CheckpointError, match=r"mamba.*allow_other_discretization=True"):
        create(TINY, pretrained=True, **other)
    assert hub["asked"] == []
    path = official(tmp_path / "vim.pth", tustin.create_model(TINY, depth=1))
    hub["hustvl/Vim-tiny-midclstok"] = {"vim_t_midclstok_76p1acc.pth": path}
    model = create(TINY, pretrained=True, allow_other_discretization=True, **other)
    assert model.config["discretization"] == "zoh"
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
    monkeypatch.setattr(hub_module, "_no_answer", lambda: None)
    with pytest.raises(CheckpointError) as caught:
        tustin.load_checkpoint(nano(), "hustvl/Vim-tiny-midclstok")
    assert str(caught.value) == (
        "there is no file 'hustvl/Vim-tiny-midclstok', and the Hugging Face hub could not provide it (ConnectionError: "
        "[Errno -2] Name or service not known); without a network, give the path of a downloaded file"
    )
