"""What is common to all code for accelerators: whether Triton is there, and which device it launches on."""

from __future__ import annotations

import functools
import importlib.util
import os
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


@functools.cache
def triton_missing() -> str | None:
    """Why there is no Triton and how to get it, or None if there is. Does not import it: that takes a second."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed; get it with 'pip install triton', it comes with PyTorch for GPUs"
    return None


def interpreted() -> bool:
    """Whether Triton's interpreter runs the kernels, on the CPU and slowly: for tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def on_device(tensor: Tensor) -> AbstractContextManager[object]:
    """Inside this block Triton launches where `tensor` is, and not on the current device."""
    if tensor.device.type in ("cpu", "meta"):
        return nullcontext()
    device: AbstractContextManager[object] = torch.get_device_module(tensor.device).device(tensor.device)
    return device
