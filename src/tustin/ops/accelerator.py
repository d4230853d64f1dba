"""What is common to all code for accelerators: whether Triton is there, and which device it launches on."""

from __future__ import annotations

import functools
import importlib.util
import os
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from ..support.devices import GPUS


@functools.cache
def triton_missing() -> str | None:
    """Why there is no Triton and how to get it, or None if there is. Does not import it: that takes a second."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed; get it with 'pip install triton'; PyTorch for GPUs includes it"
    return None


def interpreted() -> bool:
    """Whether Triton's interpreter runs the kernels, on the CPU and slowly: for tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def triton_refuses(device: torch.device) -> str | None:
    """Why Triton cannot run on `device`, or None if it can."""
    if reason := triton_missing():
        return reason
    if device.type in GPUS or (device.type == "cpu" and interpreted()):
        return None
    hint = "; its interpreter, for tests, runs there with TRITON_INTERPRET=1" if device.type == "cpu" else ""
    return f"it runs on GPUs, and the tensors are on {device}{hint}"


def on_device(tensor: Tensor) -> AbstractContextManager[object]:
    """Inside this block Triton launches where `tensor` is, and not on the current device."""
    if tensor.device.type in ("cpu", "meta"):
        return nullcontext()
    device: AbstractContextManager[object] = torch.get_device_module(tensor.device).device(tensor.device)
    return device
