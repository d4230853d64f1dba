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


WORST_ULPS = {"create_exp2": 2, "create_fdiv": 2}
"""By how many units in the last place of the correctly rounded result a GPU's instruction may be wrong.

What the documents state as the worst:

- 2^x: ex2.approx.f32, "2 ulp from correctly rounded result across the full range" (NVIDIA, PTX ISA, Floating Point
  Instructions: ex2); v_exp_f32, "1ULP accuracy, denormals are flushed" (AMD, Instinct MI300 ISA, VOP1 instructions).
- 1/x: rcp.approx.f32, 1 ulp (PTX ISA: rcp); v_rcp_f32, "IEEE rules and < 1ulp error" (AMD).
- x/y: div.full.f32, to which Triton compiles a division, 2 ulp (PTX ISA: div). The interpreter has this one for both.

e^x is compiled to 2^x of the rounded product x/ln 2, and so it is here.
"""


def degrade(monkeypatch: pytest.MonkeyPatch) -> None:
    """2^x, e^x and divisions as wrong as the documents of NVIDIA and AMD allow, with random signs."""
    import numpy as np
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    random = np.random.default_rng(0)

    def wrong(handle: Any, ulps: int) -> Any:
        data = handle.data.astype(np.float32)
        towards = random.choice(np.array([-np.inf, np.inf], np.float32), data.shape)
        for _ in range(ulps):
            data = np.where(np.isfinite(data) & (data != 0), np.nextafter(data, towards), data)
        return TensorHandle(data, handle.dtype.scalar)

    for name, ulps in WORST_ULPS.items():
        exact = getattr(InterpreterBuilder, name)
        monkeypatch.setattr(InterpreterBuilder, name, lambda self, *args, f=exact, n=ulps: wrong(f(self, *args), n))

    def exp(self: Any, handle: Any) -> Any:
        product = (handle.data * np.float32(1 / np.log(2))).astype(np.float32)
        return self.create_exp2(TensorHandle(product, handle.dtype.scalar))

    monkeypatch.setattr(InterpreterBuilder, "create_exp", exp)


def patch_once() -> None:
    """Replace Triton's functions by the interpreter's for good; it would do so anew whenever a function is called."""
    import triton.language as tl
    from triton.runtime import interpreter

    interpreter._patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    interpreter._patch_lang = lambda function: interpreter._LangPatchScope()
