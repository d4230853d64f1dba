"""`tustin info` as a user meets it."""

from pathlib import Path

import pytest
import timm

import tustin
from tests.models.test_vim import PARAMETERS
from tustin.cli import main

from .commands import refused, told

TINY = "vim_tiny_patch16_224"


def test_info_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    facts = told(capsys, "info", TINY, "--batch-size", 1)
    assert facts["model"] == TINY
    assert facts["discretization"] == "mamba"
    assert facts["parameters"]["total"] == PARAMETERS[TINY]
    assert facts["tokens"] == 197
    assert facts["flops"]["in_proj"] == 24 * 2 * 197 * 192 * 768
    assert facts["flops"]["head"] == 2 * 192 * 1000
    assert facts["flops"]["total"] == sum(facts["flops"].values()) - facts["flops"]["total"]
    assert facts["flops"]["scan"] == facts["scan_flops"]["mamba"] == 24 * 2 * 197 * 384 * (16 * 8 + 11)
    eight = told(capsys, "info", TINY)
    assert eight["batch_size"] == 8
    assert eight["memory"]["activations_training"] == 8 * facts["memory"]["activations_training"]
    zoh = told(capsys, "info", TINY, "--discretization", "zoh", "--img-size", "160x288")
    assert zoh["flops"]["scan"] == zoh["scan_flops"]["zoh"]
    assert zoh["img_size"] == [160, 288]
    assert zoh["tokens"] == 181


@pytest.mark.parametrize("width", [80, 160])
def test_info_tables(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["info", TINY, "--batch-size", "1"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= width
    assert "…" not in out
    for word in ("7,148,008", "197 tokens", "in_proj", "rk4_raw", "memory, 1 image, float32", "activations, training"):
        assert word in out


def test_info_lists_every_model(capsys: pytest.CaptureFixture[str]) -> None:
    listed = told(capsys, "info")["models"]
    assert {model["name"] for model in listed} == set(timm.list_models(module="vim"))
    assert main(["info"]) == 0
    out = capsys.readouterr().out
    for model in listed:
        assert model["name"] in out
        assert f"{model['parameters']:,}" in out


def test_info_of_a_checkpoint(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    model = tustin.create_model("vim_nano_patch2_8", depth=3, discretization="zoh", num_classes=4)
    tustin.save(model, tmp_path / "a.safetensors")
    facts = told(capsys, "info", tmp_path / "a.safetensors", "--img-size", 16)
    assert facts["parameters"]["head"] == 4 * 64 + 4
    assert facts["discretization"] == "zoh"
    assert facts["tokens"] == 65


def test_info_refuses_with_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "did you mean 'vim_tiny_patch16_224'?" in refused(capsys, 1, "info", "vim_tiny_patch16")
    assert "unknown discretization 'zoo'" in refused(capsys, 1, "info", TINY, "--discretization", "zoo")
    assert "none.safetensors: No such file" in refused(capsys, 1, "info", tmp_path / "none.safetensors")
    assert "smaller than a patch" in refused(capsys, 1, "info", TINY, "--img-size", 8)
    assert "224 or 160x288" in refused(capsys, 2, "info", TINY, "--img-size", "big")
    assert "at least 1" in refused(capsys, 2, "info", TINY, "--batch-size", 0)
    (tmp_path / "bad.safetensors").write_bytes(b"nonsense")
    assert "truncated, corrupted or not a checkpoint" in refused(capsys, 1, "info", tmp_path / "bad.safetensors")
