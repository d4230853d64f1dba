"""Running the native backend on every CPU level, and judging it by the float64 reference."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.systems import FUSED, cast
from tests.tolerances import DERIVATIVES, SCAN, assert_close
from tustin import selective_scan
from tustin.ops import native

Arguments = dict[str, Tensor]
needs_native = pytest.mark.skipif(bool(native.missing()), reason=str(native.missing()))
each_discretization = pytest.mark.parametrize("discretization", FUSED)


@contextmanager
def cpu_level(name: str) -> Iterator[None]:
    """Inside this block the code compiled for another instruction set runs."""
    before = native.cpu_level()
    native.set_cpu_level(name)
    try:
        yield
    finally:
        native.set_cpu_level(before)


LEVELS = [] if native.missing() else native.cpu_levels()
ALIKE = [level for level in LEVELS if level != "v2"]
"""Those that give the same bits: all that have fused operations."""


def run(x: Arguments, weight: Tensor, **how: object) -> Arguments:
    """Output, last state, and the gradient of every argument, of a loss on both of them; by name."""
    leaves = {name: t.detach().requires_grad_() for name, t in x.items()}
    out, last = selective_scan(**leaves, **how, return_last_state=True)
    gradients = torch.autograd.grad((out, last), list(leaves.values()), (weight.to(out.dtype), last.detach()))
    named = dict(zip([f"gradient of {name}" for name in leaves], gradients, strict=True))
    return {"output": out.detach(), "last state": last.detach(), **named}


def output_and_gradients(call: Callable[..., Tensor], x: Arguments, **how: Any) -> Arguments:
    """Of an operator with one output: it, and the gradient of every argument for a fixed one of the output; by name."""
    leaves = {name: t.detach().requires_grad_() for name, t in x.items()}
    out = call(**leaves, **how)
    d_out = torch.linspace(0.5, 1.5, out.numel(), dtype=torch.float64).view(out.shape).to(out.dtype)
    gradients = torch.autograd.grad(out, list(leaves.values()), d_out)
    return {"output": out.detach()} | {f"gradient of {n}": g for n, g in zip(leaves, gradients, strict=True)}


def in_threads_at_once(call: Callable[..., Tensor], samples: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """What the call makes of each sample, each in a thread of its own."""
    got: dict[int, Tensor] = {}
    workers = [threading.Thread(target=lambda i=i: got.update({i: call(*samples[i])})) for i in range(len(samples))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return [got[i] for i in range(len(samples))]


def weight_for(x: Arguments) -> Tensor:
    """What the loss multiplies the output with: no two the same, and of one sign, so that gradients do not cancel."""
    return torch.linspace(0.5, 1.5, x["u"].numel(), dtype=torch.float64).view_as(x["u"])


def assert_follows(x: Arguments, least: float = 0.0, but: tuple[str, ...] = (), **how: object) -> None:
    """On each level native equals the float64 reference: values to SCAN, gradients to DERIVATIVES.

    `least` is the scale that a gradient is judged by where all its entries are smaller: where its terms cancel, or
    where it is zero. `but` names arguments whose gradient is not judged.
    """
    weight = weight_for(x)
    expected = run(cast(x, torch.float64), weight, backend="reference", **how)
    assert_on_each_level(lambda: run(x, weight, backend="native", **how), expected, least, but)


def assert_on_each_level(
    run_native: Callable[[], Arguments], expected: Arguments, least: float, but: tuple[str, ...] = ()
) -> None:
    """What `run_native` returns equals the float64 reference on each level; `assert_follows` says how it is judged."""
    for level in LEVELS:
        with cpu_level(level):
            got = run_native()
        for what, value in expected.items():
            if what.removeprefix("gradient of ") in but:
                continue
            table, floor = (DERIVATIVES, least) if "gradient" in what else (SCAN, 0.0)
            both = (torch.cat([t.flatten(), t.new_tensor([floor])]) for t in (got[what], value))
            assert got[what].shape == value.shape
            assert_close(*both, table, f"{what} on {level}")


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program in a process of its own, for what depends on the environment or on how a process starts."""
    command = [sys.executable, "-W", "default", "-c", code]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=120)
