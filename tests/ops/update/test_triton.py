"""Triton's updates: their values in the interpreter, and their place among the backends."""

import pytest
import torch

from tests.interpreter import needs_triton, run_interpreted
from tustin.discretize import get_discretization
from tustin.ops.dispatch import choose


@needs_triton
def test_in_the_interpreter() -> None:
    """Every rule, shapes, dtypes, states of any strides; in a process of its own."""
    assert " passed" in run_interpreted("tests/ops/update/interpreted_triton.py")


@needs_triton
@pytest.mark.parametrize("device", ["cuda", "xpu"])
def test_auto_takes_it_on_a_gpu(device: str) -> None:
    assert choose("causal_conv_update", "auto", torch.device(device)) == "triton"
    rule = get_discretization("bil")
    assert choose("selective_state_update", "auto", torch.device(device), rule, torch.float32) == "triton"


@pytest.mark.parametrize("name", ["selective_state_update", "causal_conv_update"])
def test_registered_for_gpus(name: str) -> None:
    for key in ("CPU", "CUDA", "XPU"):
        assert torch._C._dispatch_has_kernel_for_dispatch_key(f"tustin::{name}", key)
