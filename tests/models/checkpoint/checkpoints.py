"""Small models and the files that tests of checkpoints make of them."""

import argparse
import json
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

import tustin
from tustin.models import VisionMamba, describe


def nano(**kwargs: Any) -> Any:
    torch.manual_seed(0)
    return tustin.create_model("vim_nano_patch2_8", **{"depth": 2} | kwargs).eval()


def official(path: Path, model: VisionMamba, **more: Any) -> Path:
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


def rewritten(folder: Path, **changes: Any) -> Path:
    path = folder / "a.safetensors"
    tustin.save(nano(), path)
    told = describe(path) | changes
    safetensors.torch.save_file(safetensors.torch.load_file(path), path, {"tustin": json.dumps(told)})
    return path
