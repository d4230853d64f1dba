"""The same bits on every CPU that has fused operations, and on the fast and the careful path of the kernel."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.native import (
    ALIKE,
    LEVELS,
    Arguments,
    cpu_level,
    each_discretization,
    needs_native,
    output_and_gradients,
    run,
)
from tests.systems import OPTIONAL, system
from tustin.ops.conv import causal_conv
from tustin.ops.rowwise import gated_mean, rms_norm
from tustin.ops.scan import native as native_scan

pytestmark = needs_native
D, L, N = 40, 2500, 5

Steps = Callable[[torch.Generator, tuple[int, ...]], Tensor]


def _uniform(low: float, high: float) -> Steps:
    return lambda generator, shape: low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)


def _mixed(generator: torch.Generator, shape: tuple[int, ...]) -> Tensor:
    """Of every size, from 1e-9 to 1e4, in chunks that are otherwise ordinary."""
    steps = _uniform(0.001, 0.5)(generator, shape)
    rare = torch.rand(shape, generator=generator) < 0.002
    return torch.where(rare, 10.0 ** _uniform(-9, 4)(generator, shape), steps)


STEPS: dict[str, Steps] = {
    "ordinary": _uniform(0.001, 1.0),
    "tiny": _uniform(0.0, 1e-6),
    "long": _uniform(0.0, 20.0),  # some chunks within the limits of the quick formulas, some not
    "huge": _uniform(0.0, 1e3),
    "mixed": _mixed,
}


def _system(kind: str, discretization: str, dtype: torch.dtype) -> Arguments:
    x = system(1, D, L, N, C="grouped", optional=OPTIONAL, discretization=discretization, dtype=dtype)
    steps = STEPS[kind](torch.Generator().manual_seed(3), (1, D, L))
    x["delta"] = (steps / 1e3 if discretization == "rk4_raw" and kind in ("long", "huge", "mixed") else steps).to(dtype)
    x["A"][::3, 0], x["A"][1::5, 1] = -0.01, 0.0  # too small for the quick formulas, in some channels
    return x


def _outgoing(x: Arguments) -> Tensor:
    return torch.randn(x["u"].shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


def _assert_same_bits(got: Arguments, expected: Arguments, what: str) -> None:
    for name, tensor in expected.items():
        different = ~((got[name] == tensor) | (got[name].isnan() & tensor.isnan()))
        different |= (got[name].signbit() != tensor.signbit()) & ~tensor.isnan()
        assert not different.any(), f"{what}: {int(different.sum())} of {tensor.numel()} numbers of {name} differ"


@each_discretization
@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_fast_and_careful_path(
    dtype: torch.dtype, kind: str, discretization: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over thousands of tokens, forward and backward, on every level."""
    x = _system(kind, discretization, dtype)
    how = {"discretization": discretization, "backend": "native"}
    for level in LEVELS:
        with cpu_level(level):
            fast = run(x, _outgoing(x), **how)
            with monkeypatch.context() as patch:
                patch.setattr(native_scan, "CAREFUL", True)
                _assert_same_bits(run(x, _outgoing(x), **how), fast, f"the careful path on {level}")


@each_discretization
@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_scan_on_every_level(dtype: torch.dtype, kind: str, discretization: str) -> None:
    x = _system(kind, discretization, dtype)
    for reverse in (False, True):
        how = {
            "discretization": discretization,
            "backend": "native",
            "reverse": reverse,
            "delta_softplus": kind == "ordinary",
        }
        _assert_alike(lambda how=how: run(x, _outgoing(x), **how))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_what_surrounds_the_scan_on_every_level(dtype: torch.dtype) -> None:
    """The convolution, the gate and the norm, for whole vectors and others."""
    random = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random).to(dtype)

    for channels in (192, 37):
        rows = {"x": normal(3, 65, channels), "weight": normal(channels)}
        _assert_alike(lambda rows=rows: output_and_gradients(rms_norm, rows, eps=1e-5))
        gate = {name: normal(3, 65, channels) for name in ("a", "b", "gate")}
        _assert_alike(lambda gate=gate: output_and_gradients(gated_mean, gate))
        for width in (4, 3):
            conv = {"x": normal(2, channels, 600), "weight": normal(channels, width), "bias": normal(channels)}
            for silu in (False, True):
                _assert_alike(lambda conv=conv, silu=silu: output_and_gradients(causal_conv, conv, silu=silu))


def _assert_alike(compute: Callable[[], Arguments]) -> None:
    results = {}
    for level in ALIKE:
        with cpu_level(level):
            results[level] = compute()
    for level in ALIKE[1:]:
        _assert_same_bits(results[level], results[ALIKE[0]], f"{level} beside {ALIKE[0]}")
