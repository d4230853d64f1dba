"""What docs/math.md promises of NaN, of infinities, and of numbers near the largest and the smallest."""

import random

import pytest
import torch
from torch import Tensor

from tests.native import LEVELS, cpu_level, each_discretization, needs_native
from tests.systems import OPTIONAL, cast, system
from tests.tolerances import SCAN, assert_close
from tustin import selective_scan

pytestmark = needs_native


@pytest.mark.parametrize("value", [torch.inf, -torch.inf])
@pytest.mark.parametrize("name", ["u", "B", "C", "D", "z", "initial_state"])
@each_discretization
def test_an_infinity_shows(discretization: str, name: str, value: float) -> None:
    """What is not finite in the reference is not finite in the native backend, and nothing else."""
    x = system(1, 3, 5, 2, optional=OPTIONAL, discretization=discretization)
    x[name].view(-1)[x[name].numel() // 2] = value
    expected = selective_scan(**x, discretization=discretization, return_last_state=True, backend="reference")
    assert not all(t.isfinite().all() for t in expected)
    for level in LEVELS:
        with cpu_level(level):
            got = selective_scan(**x, discretization=discretization, return_last_state=True, backend="native")
        for one, other in zip(got, expected, strict=True):
            assert torch.equal(one.isfinite(), other.isfinite()), level


def reach(x: dict[str, Tensor]) -> float:
    """The bound of docs/math.md on every number that a scan meets on its way."""
    u, delta, B, C, D, z, start = (
        float(x[name].abs().max()) for name in ("u", "delta", "B", "C", "D", "z", "initial_state")
    )
    L, N = x["u"].shape[2], x["A"].shape[1]
    state = start + L * max(1, delta + float(x["delta_bias"].abs().max())) ** 4 * u * max(1, B)
    return max(state, (N * C * state + D * u) * max(1, z))


@pytest.mark.parametrize("seed", range(5))
@each_discretization
def test_as_long_as_no_product_overflows(discretization: str, seed: int) -> None:
    """Arguments of very different sizes, as far as the bound allows."""
    chance = random.Random(seed)
    normal = system(2, 5, 7, 3, optional=OPTIONAL, discretization=discretization, seed=seed)
    sized = ("u", "B", "C", "D", "z", "initial_state")
    while True:
        sizes = {name: 10 ** chance.uniform(-18, 30) for name in sized}
        x = {name: t * sizes.get(name, 1) for name, t in normal.items()}
        if 1e30 < reach(x) < torch.finfo(torch.float32).max / 16:
            break
    expected = selective_scan(
        **cast(x, torch.float64), discretization=discretization, return_last_state=True, backend="reference"
    )
    for level in LEVELS:
        with cpu_level(level):
            got = selective_scan(**x, discretization=discretization, return_last_state=True, backend="native")
        for one, other in zip(got, expected, strict=True):
            assert_close(one, other, SCAN, f"sizes {sizes} on {level}")
