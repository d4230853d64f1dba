"""Configuration and weights from the Hugging Face hub, or from a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import hf_hub_download
from torch import Tensor

__all__ = ["load_config_hf", "load_state_dict_hf"]


def load_config_hf(model_name: str) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(_file(model_name, "config.json").read_text(encoding="utf-8"))
    return config


def load_state_dict_hf(
    model_name: str, device: torch.device | str | None = None, dtype: torch.dtype | None = None
) -> dict[str, Tensor]:
    """The weights, in this dtype and on this device if given. The file cannot execute code."""
    state: dict[str, Tensor] = torch.load(
        _file(model_name, "pytorch_model.bin"), map_location="cpu" if device is None else device, weights_only=True
    )
    return state if dtype is None else {name: tensor.to(dtype) for name, tensor in state.items()}


def _file(model_name: str, name: str) -> Path:
    here = Path(model_name) / name
    return here if here.is_file() else Path(hf_hub_download(model_name, name))
