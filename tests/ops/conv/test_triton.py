"""Triton's convolution: its values in the interpreter, its place among the backends, and a machine without Triton."""

import pytest
import torch

from tests.interpreter import needs_triton, run_interpreted
from tests.native import run_python
from tests.ops.conv.test_conv import filters
from tustin.ops.conv import causal_conv
from tustin.ops.dispatch import choose


@needs_triton
def test_in_the_interpreter() -> None:
    """Values, gradients, shapes, layouts, dtypes, extremes; in a process of its own."""
    assert " passed" in run_interpreted("tests/ops/conv/interpreted_triton.py")


@needs_triton
def test_not_on_a_cpu_tensor() -> None:
    with pytest.raises(
        RuntimeError, match="'triton' cannot be used: it runs on GPUs, and the tensors are on cpu; its in"
    ):
        causal_conv(**filters(1, 2, 3, 4), backend="triton")


@needs_triton
@pytest.mark.parametrize("device", ["cuda", "xpu"])
def test_auto_takes_it_on_a_gpu(device: str) -> None:
    assert choose("causal_conv", "auto", torch.device(device)) == "triton"


@needs_triton
def test_registered_for_gpus() -> None:
    for name in ("causal_conv", "causal_conv_backward"):
        for key in ("CPU", "CUDA", "XPU"):
            assert torch._C._dispatch_has_kernel_for_dispatch_key(f"tustin::{name}", key)


def test_without_triton_it_says_how_to_get_it(no_triton: None) -> None:
    with pytest.raises(RuntimeError, match="Triton is not installed; get it with 'pip install triton'"):
        causal_conv(**filters(1, 2, 3, 4), backend="triton")


def test_without_triton_a_gpu_takes_the_reference_and_says_so(no_triton: None) -> None:
    with pytest.warns(UserWarning, match="because the triton backend cannot run it: Triton is not inst"):
        assert choose("causal_conv", "auto", torch.device("cuda", 5)) == "reference"


def test_nobody_imports_triton_unasked() -> None:
    """It takes a second, and many machines have none."""
    done = run_python(
        "import sys, torch\n"
        "before = 'triton' in sys.modules\n"
        "from tustin.ops.conv import causal_conv\n"
        "causal_conv(torch.ones(1, 2, 3), torch.ones(2, 4))\n"
        "assert before or 'triton' not in sys.modules"
    )
    assert done.returncode == 0, done.stderr
