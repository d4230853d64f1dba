"""The fused gate and norm against the float64 reference: shapes, layouts, dtypes, values; the same bits every time."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.native import LEVELS, Arguments, assert_on_each_level, cpu_level, needs_native, output_and_gradients
from tests.ops.scan.test_native_accuracy import batch_inside, channel_last, covering, name_of, plain, sliced
from tests.tolerances import DERIVATIVES, SCAN, assert_close
from tustin.ops.rowwise import gated_mean, rms_norm

pytestmark = needs_native

HALVES = [torch.float16, torch.bfloat16]


def norm(x: Tensor, weight: Tensor, eps: float = 1e-5, **how: Any) -> Tensor:
    return rms_norm(x, weight, eps, **how)


OPERATORS: dict[str, Callable[..., Tensor]] = {"gated_mean": gated_mean, "rms_norm": norm}
each_operator = pytest.mark.parametrize("name", OPERATORS)


def arguments(name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Arguments:
    """Random arguments of an operator, by name; the last dimension of `shape` is D."""
    random = torch.Generator().manual_seed(sum(shape))
    shapes = {"a": shape, "b": shape, "gate": shape} if name == "gated_mean" else {"x": shape, "weight": shape[-1:]}
    return {n: (2 * torch.randn(s, generator=random, dtype=torch.float64)).to(dtype) for n, s in shapes.items()}


def cast(x: Arguments, dtype: torch.dtype) -> Arguments:
    return {name: t.to(dtype) for name, t in x.items()}


def run(name: str, x: Arguments, **how: Any) -> Arguments:
    """The output, and the gradient of every argument for a fixed gradient of the output; by name."""
    return output_and_gradients(OPERATORS[name], x, **how)


def assert_follows(name: str, x: Arguments, **how: Any) -> None:
    """On each level native equals the float64 reference; a gradient is judged by 1 where all of it is smaller."""
    expected = run(name, cast(x, torch.float64), backend="reference", **how)
    assert_on_each_level(lambda: run(name, x, backend="native", **how), expected, least=1.0)


# ── shapes and layouts ───────────────────────────────────────────────────────────────────────────────────────────────


def half_of_a_projection(t: Tensor) -> Tensor:
    """Every row the first half of a longer one that is NaN elsewhere."""
    wide = torch.full((*t.shape[:-1], 2 * t.shape[-1]), torch.nan, dtype=t.dtype)
    wide[..., : t.shape[-1]] = t
    return wide[..., : t.shape[-1]]


def expanded(t: Tensor) -> Tensor:
    """One row for all: stride 0."""
    return t[:1].expand_as(t)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    f.__name__: f for f in (plain, channel_last, half_of_a_projection, sliced, batch_inside, expanded)
}
CASES = covering(
    0,
    {
        "name": tuple(OPERATORS),
        "rows": (1, 2, 31, 33, 197),  # a span is 32 rows
        "D": (1, 7, 8, 33, 192, 385),  # a vector is 4 to 32 channels, a piece 1024 numbers
        "batch": (1, 3),
        "layout": tuple(LAYOUTS),
    },
)


def arguments_of(case: dict, dtype: torch.dtype = torch.float32) -> Arguments:
    """The tensors of a case; the first one in its layout, the last one contiguous."""
    x = arguments(case["name"], case["batch"], case["rows"], case["D"], dtype=dtype)
    first = next(iter(x))
    return x | {first: LAYOUTS[case["layout"]](x[first])}


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_shapes_and_layouts(case: dict) -> None:
    assert_follows(case["name"], arguments_of(case))


@pytest.mark.parametrize("case", CASES[:: len(CASES) // 8], ids=name_of)
def test_float64(case: dict) -> None:
    """Twelve digits: the double-precision kernel is not the single-precision one with wider variables."""
    assert_follows(case["name"], arguments_of(case, torch.float64))


@each_operator
@pytest.mark.parametrize("shape", [(5,), (4, 6), (2, 3, 4, 33), (2, 0, 7), (0, 7), (3, 0)], ids=str)
def test_any_number_of_dimensions(name: str, shape: tuple[int, ...]) -> None:
    """One row without a batch, many, none; without rows the gradient of the weight is zero."""
    assert_follows(name, arguments(name, *shape))


@each_operator
def test_all_arguments_in_another_layout(name: str) -> None:
    """The same bits as plain ones; the results are contiguous."""
    x = arguments(name, 3, 40, 33)
    expected = run(name, x, backend="native")
    for layout in (channel_last, half_of_a_projection, sliced, batch_inside):
        moved = {n: t if t.ndim == 1 and layout is batch_inside else layout(t) for n, t in x.items()}
        for what, value in run(name, moved, backend="native").items():
            assert torch.equal(value, expected[what]), what
            assert value.is_contiguous(), what


# ── dtypes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@each_operator
@pytest.mark.parametrize("D", [33, 64])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_16_bit_is_float32_rounded_once(dtype: torch.dtype, level: str, D: int, name: str) -> None:
    """Same bits as float32 on the same values, rounded at the end; so are the gradients."""
    x = arguments(name, 2, 70, D, dtype=dtype)
    with cpu_level(level):
        narrow, wide = run(name, x, backend="native"), OPERATORS[name](**cast(x, torch.float32), backend="native")
    assert torch.equal(narrow["output"], wide.to(dtype))
    reference = run(name, cast(x, torch.float64), backend="reference")
    for what, value in narrow.items():
        assert value.dtype == dtype, what
        assert_close(value, reference[what], SCAN | {dtype: 2 * SCAN[dtype]}, what)  # d_out was rounded, too


@pytest.mark.parametrize("weight", [torch.float32, torch.float64, *HALVES], ids=str)
@pytest.mark.parametrize("x", [torch.float32, torch.float64, *HALVES], ids=str)
def test_norm_of_two_dtypes(x: torch.dtype, weight: torch.dtype) -> None:
    """Computed in the wider, at least float32; the output has the dtype of the weight."""
    mixed = arguments("rms_norm", 2, 30, 20)
    mixed = {"x": mixed["x"].to(x), "weight": mixed["weight"].to(weight)}
    wide = torch.float64 if torch.float64 in (x, weight) else torch.float32
    got, expected = run("rms_norm", mixed, backend="native"), norm(**cast(mixed, wide), backend="native")
    assert torch.equal(got["output"], expected.to(weight))
    assert [got[f"gradient of {name}"].dtype for name in mixed] == [x, weight]
    reference = norm(**mixed, backend="reference")
    assert reference.dtype == weight
    assert_close(got["output"], reference.double(), SCAN)


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_silu_over_its_whole_range(dtype: torch.dtype, level: str) -> None:
    """A mean of 1 leaves the SiLU alone: each value to the tolerance of itself, from where it is 4e-8 on."""
    gate = torch.linspace(-20, 100, 4801, dtype=torch.float64).to(dtype)
    one = torch.ones_like(gate)
    with cpu_level(level):
        got = gated_mean(one, one, gate, backend="native")
    exact = gate.double() * torch.sigmoid(gate.double())
    assert ((got - exact).abs() <= SCAN[dtype] * exact.abs()).all()


@pytest.mark.parametrize("copies", [1, 32])
@pytest.mark.parametrize("level", LEVELS)
def test_extreme_gates_pass_as_in_pytorch(level: str, copies: int) -> None:
    """±100, large numbers, infinities and NaN: finite, zero, infinite or NaN exactly where PyTorch's SiLU is."""
    large = [88.5, 100.0, 1e30, 3e37, torch.inf]
    gate = torch.tensor([*large, *(-v for v in large), torch.nan, 0]).repeat(copies)
    x = {"a": torch.full_like(gate, 0.75), "b": torch.full_like(gate, 0.25), "gate": gate}
    with cpu_level(level):
        got = run("gated_mean", x, backend="native")
    for what, value in run("gated_mean", x, backend="reference").items():
        assert torch.allclose(got[what], value, rtol=1e-6, atol=1e-34, equal_nan=True), what


@pytest.mark.parametrize("level", LEVELS)
def test_extreme_rows(level: str) -> None:
    """Zeros, the smallest and large numbers, each to the tolerance of its row; infinity and NaN stay in theirs."""
    x = arguments("rms_norm", 6, 33)
    rows = x["x"]
    rows[0], rows[1], rows[2] = 0, rows[1] * 1e-38, rows[2] * 1e18
    rows[3, 5], rows[4, 32] = torch.inf, torch.nan
    with cpu_level(level):
        got = run("rms_norm", x, backend="native")
    expected = run("rms_norm", x, backend="reference")
    exact = run("rms_norm", cast(x, torch.float64), backend="reference")
    for what, table in (("output", SCAN), ("gradient of x", DERIVATIVES)):
        assert torch.equal(got[what].isnan(), expected[what].isnan()), what
        for row in (0, 1, 2, 5):
            assert_close(got[what][row], exact[what][row], table, f"{what}, row {row}")


# ── bits ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@each_operator
@pytest.mark.parametrize("D", [72, 64])
def test_same_bits_every_time(D: int, name: str) -> None:
    """Over runs, numbers of threads, and whether a sample is alone or in a batch."""
    x = arguments(name, 6, 150, D)
    first = run(name, x, backend="native")
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            for _ in range(4):
                for what, value in run(name, x, backend="native").items():
                    assert torch.equal(value, first[what]), f"{what} on {count} threads"
    finally:
        torch.set_num_threads(threads)
    for i in range(6):
        alone = {n: t if t.ndim == 1 else t[i : i + 1] for n, t in x.items()}
        out = OPERATORS[name](**alone, backend="native")
        assert torch.equal(out, first["output"][i : i + 1])


def test_a_number_does_not_depend_on_its_place() -> None:
    """In the middle of a piece, or in the last vector of the last one, which is not full."""
    x = {name: torch.full((5003,), value) for name, value in (("a", 0.3), ("b", -1.7), ("gate", 0.9))}
    leaves = {name: t.requires_grad_() for name, t in x.items()}
    out = gated_mean(**leaves, backend="native")
    for values in (out, *torch.autograd.grad(out.sum(), list(leaves.values()))):
        assert (values == values[0]).all()


def test_reference_is_the_definition() -> None:
    a, b, gate = arguments("gated_mean", 3, 5, dtype=torch.float64).values()
    assert_close(gated_mean(a, b, gate, backend="reference"), (a + b) / 2 * gate / (1 + torch.exp(-gate)))
    x, weight = arguments("rms_norm", 3, 5, dtype=torch.float64).values()
    size = (x.square().sum(dim=-1, keepdim=True) / 5 + 0.25).sqrt()
    assert_close(rms_norm(x, weight, 0.25, backend="reference"), x / size * weight)


@pytest.mark.parametrize("eps", [1e-12, 0.25, 10.0])
def test_eps(eps: float) -> None:
    assert_follows("rms_norm", arguments("rms_norm", 4, 33), eps=eps)
