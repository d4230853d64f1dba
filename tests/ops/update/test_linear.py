"""A linear layer of a few rows: close to the exact result, and the same bits for any threads, CPU and batch."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.native import ALIKE, LEVELS, cpu_level, needs_native
from tests.tolerances import assert_close
from tustin.ops.update.native import linear

pytestmark = needs_native


def layer(rows: int, K: int, N: int, bias: bool = True) -> tuple[Tensor, Tensor, Tensor | None]:
    """In the middle of larger tensors full of NaN, so that whoever reads beside them is found out."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        count = torch.Size(shape).numel()
        room = torch.full((count + 64,), torch.nan)
        return room[17 : 17 + count].view(shape).copy_(torch.randn(*shape, generator=generator))

    return normal(rows, K), normal(N, K), normal(N) if bias else None


@pytest.mark.parametrize("rows", [0, 1, 2, 5])
@pytest.mark.parametrize(("K", "N"), [(1, 1), (7, 3), (16, 5), (63, 2), (64, 33), (129, 80), (768, 50), (1, 0), (0, 3)])
def test_it_is_the_linear_layer(rows: int, K: int, N: int) -> None:
    for bias in (True, False):
        x = layer(rows, K, N, bias)
        expected = F.linear(*(None if t is None else t.double() for t in x))
        for level in LEVELS:
            with cpu_level(level):
                out = linear(*x)
            assert out.shape == (rows, N)
            assert_close(out, expected, {torch.float32: 2e-6})


def test_the_same_bits() -> None:
    """The sums are those of one row on one thread of any CPU with fused operations."""
    x, weight, bias = layer(3, 333, 257)
    found = []
    for level in ALIKE:
        for threads in (1, 2, 3):
            before = torch.get_num_threads()
            torch.set_num_threads(threads)
            try:
                with cpu_level(level):
                    found += [linear(x, weight, bias), torch.cat([linear(row[None], weight, bias) for row in x])]
            finally:
                torch.set_num_threads(before)
    assert all(torch.equal(other, found[0]) for other in found)


def test_rows_with_strides() -> None:
    """As a part of a projection."""
    x, weight, bias = layer(2, 40, 9)
    wide = torch.cat([x, x], 1)
    assert torch.equal(linear(wide[:, 40:], weight, bias), linear(x, weight, bias))
    assert torch.equal(linear(x.T.contiguous().T, weight, bias), linear(x, weight, bias))


def test_odd_values() -> None:
    x, weight, bias = layer(1, 37, 4)
    weight[1, 36], weight[2, 3] = torch.inf, torch.nan
    out = linear(x, weight, bias)[0]
    assert out[1].isinf()
    assert out[2].isnan()
    assert out[[0, 3]].isfinite().all()
