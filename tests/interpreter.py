"""Triton's interpreter in a process of its own: it is chosen when Triton is imported, for the whole process."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[1]
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")


def run_interpreted(file: str, *options: str, seconds: int = 600) -> str:
    """The tests in `file`, a path from the root, by the interpreter: what pytest said. Fails if one of them does."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *options, file]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def round_as_a_gpu_does() -> None:
    """float32 becomes the nearest bfloat16, as on every GPU; the interpreter alone would cut off its last bits."""
    import triton.language as tl
    from triton.runtime import interpreter

    convert = interpreter._convert_float

    def round_to_nearest(values: Any, source: Any, target: Any, mode: Any) -> Any:
        if (source, target) != (tl.float32, tl.bfloat16):
            return convert(values, source, target, mode)
        return torch.tensor(values).bfloat16().view(torch.uint16).numpy()

    interpreter._convert_float = round_to_nearest


def degrade(monkeypatch: pytest.MonkeyPatch) -> None:
    """2^x, e^x and divisions wrong by 2⁻²² of the value, as triton_elementary.py assumes at most, of a random sign."""
    import numpy as np
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    random = np.random.default_rng(0)

    def wrong(handle: Any) -> Any:
        sign = random.choice(np.array([-1, 1], handle.data.dtype), handle.data.shape)
        return TensorHandle(handle.data * (1 + sign * handle.data.dtype.type(2**-22)), handle.dtype.scalar)

    for name in ("create_exp2", "create_exp", "create_fdiv"):
        exact = getattr(InterpreterBuilder, name)
        monkeypatch.setattr(InterpreterBuilder, name, lambda self, *args, f=exact: wrong(f(self, *args)))


def patch_once() -> None:
    """Replace Triton's functions by the interpreter's for good; it would do so anew whenever a function is called."""
    import triton.language as tl
    from triton.runtime import interpreter

    interpreter._patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    interpreter._patch_lang = lambda function: interpreter._LangPatchScope()
