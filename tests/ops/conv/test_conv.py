"""The fused convolution against the float64 reference: shapes, layouts, dtypes, values; the same bits every time."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.native import LEVELS, Arguments, assert_on_each_level, cpu_level, needs_native, output_and_gradients
from tests.ops.scan.test_native_accuracy import batch_inside, channel_last, covering, name_of, plain, sliced
from tests.tolerances import DERIVATIVES, SCAN, assert_close
from tustin.ops.conv import causal_conv

pytestmark = needs_native

HALVES = [torch.float16, torch.bfloat16]


def filters(batch: int, D: int, L: int, K: int, bias: bool = True, dtype: torch.dtype = torch.float32) -> Arguments:
    """Random arguments of `causal_conv`, by name."""
    random = torch.Generator().manual_seed(D + L + K)
    shapes = {"x": (batch, D, L), "weight": (D, K), "bias": (D,)}
    x = {name: torch.randn(shape, generator=random, dtype=torch.float64).to(dtype) for name, shape in shapes.items()}
    return x if bias else {name: x[name] for name in ("x", "weight")}


def run(x: Arguments, **how: object) -> Arguments:
    """The output, and the gradient of every argument for a fixed gradient of the output; by name."""
    return output_and_gradients(causal_conv, x, **how)


def assert_follows(x: Arguments, **how: object) -> None:
    """On each level native equals the float64 reference; a gradient is judged by 1 where all of it is smaller."""
    expected = run({name: t.double() for name, t in x.items()}, backend="reference", **how)
    assert_on_each_level(lambda: run(x, backend="native", **how), expected, least=1.0)


# ── shapes and layouts ───────────────────────────────────────────────────────────────────────────────────────────────


def half_of_a_projection(t: Tensor) -> Tensor:
    """Channel last, and every row the first half of a longer one that is NaN elsewhere: as the mixer has it."""
    wide = torch.full((t.shape[0], t.shape[2], 2 * t.shape[1]), torch.nan, dtype=t.dtype)
    wide[..., : t.shape[1]] = t.mT
    return wide[..., : t.shape[1]].mT


def expanded(t: Tensor) -> Tensor:
    """One sample, and one token, for all: stride 0."""
    return t[:1, :, :1].expand_as(t)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    f.__name__: f for f in (plain, channel_last, half_of_a_projection, sliced, batch_inside, expanded)
}
CASES = covering(
    0,
    {
        "L": (1, 2, 3, 63, 129, 530),  # a piece is 64 tokens, a span 512
        "D": (1, 7, 8, 33, 384),  # a vector is 4 to 32 channels, a slice 64
        "K": (1, 2, 4, 5),
        "batch": (1, 3),
        "layout": tuple(LAYOUTS),
        "reverse": (False, True),
        "silu": (True, False),
        "bias": (True, False),
    },
)


def arguments_of(case: dict, dtype: torch.dtype = torch.float32) -> tuple[Arguments, dict]:
    """The tensors of a case, in its layout, and how to run them."""
    x = filters(case["batch"], case["D"], case["L"], case["K"], case["bias"], dtype)
    x["x"] = LAYOUTS[case["layout"]](x["x"])
    return x, {"reverse": case["reverse"], "silu": case["silu"]}


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_shapes_and_layouts(case: dict) -> None:
    x, how = arguments_of(case)
    assert_follows(x, **how)


@pytest.mark.parametrize("case", CASES[:: len(CASES) // 6], ids=name_of)
def test_float64(case: dict) -> None:
    """Twelve digits: the double-precision kernel is not the single-precision one with wider variables."""
    x, how = arguments_of(case, torch.float64)
    assert_follows(x, **how)


@pytest.mark.parametrize("K", [4, 5])
def test_no_batch(K: int) -> None:
    """An empty batch has an empty output, and gradients of zero."""
    assert_follows(filters(0, 5, 33, K))
    assert not run(filters(0, 5, 33, K), backend="native")["gradient of weight"].any()


@pytest.mark.parametrize("L", [1, 100, 200])
def test_a_filter_longer_than_a_piece(L: int) -> None:
    """130 taps: longer than the 64 tokens that are worked on at once, and than a short sequence."""
    assert_follows(filters(2, 20, L, 130))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("K", [4, 5])
def test_reverse_is_flipping_twice(layout: str, K: int) -> None:
    x = filters(2, 33, 70, K)
    flipped = causal_conv(x["x"].flip(2), x["weight"], x["bias"], backend="native").flip(2)
    x["x"] = LAYOUTS[layout](x["x"])
    if layout != "expanded":
        assert torch.equal(causal_conv(**x, reverse=True, backend="native"), flipped)
    assert_close(causal_conv(**x, reverse=True, backend="native"), causal_conv(**x, reverse=True, backend="reference"))


def test_output_is_laid_out_as_the_input() -> None:
    """Dense, with the dimensions in the same order; so is the gradient."""
    for layout, order in ((plain, (2, 1, 0)), (half_of_a_projection, (1, 2, 0)), (batch_inside, (0, 2, 1))):
        x = filters(2, 6, 5, 4)
        x["x"] = layout(x["x"])
        results = run(x, backend="native")
        for out in (results["output"], results["gradient of x"]):
            assert out.permute(order[::-1]).is_contiguous(), layout.__name__


def test_parameters_of_any_strides() -> None:
    """As a slice of a Conv1d's weight, transposed, or one for all channels."""
    x = filters(2, 33, 20, 4)
    expected = causal_conv(**x, backend="native")
    for layout in (lambda t: t.T.contiguous().T, sliced):
        moved = x | {"weight": layout(x["weight"]), "bias": sliced(x["bias"])}
        assert torch.equal(causal_conv(**moved, backend="native"), expected)
        assert_follows(moved)
    assert_follows(x | {"weight": x["weight"][:1].expand(33, 4), "bias": x["bias"][:1].expand(33)})


@pytest.mark.parametrize("reverse", [False, True])
def test_offsets_beyond_32_bits(reverse: bool, tmp_path: Path) -> None:
    """Strides of over 2³¹ elements, in a file that is nearly all hole."""
    far = (1 << 31) + 64
    memory = torch.from_file(str(tmp_path / "far"), shared=True, size=4 * far, dtype=torch.float32)
    x = filters(2, 3, 4, 4)
    expected = run(x, reverse=reverse, backend="native")
    for strides in ((far, 20, 1), (1, far, 2), (50, 1, far)):
        view = memory.as_strided(x["x"].shape, strides).copy_(x["x"])
        for what, value in run(x | {"x": view}, reverse=reverse, backend="native").items():
            assert torch.equal(value, expected[what]), what


# ── dtypes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_16_bit_is_float32_rounded_once(dtype: torch.dtype, layout: str) -> None:
    """Same bits as float32 on the same values, rounded at the end; so are the gradients."""
    x = filters(2, 37, 70, 4, dtype=dtype)
    x["x"] = LAYOUTS[layout](x["x"])
    narrow = causal_conv(**x, backend="native")
    wide = causal_conv(**{name: t.float() for name, t in x.items()}, backend="native")
    assert narrow.dtype == dtype
    assert torch.equal(narrow, wide.to(dtype))

    for what, value in run(x, backend="native").items():
        assert value.dtype == dtype, what
        reference = run({name: t.double() for name, t in x.items()}, backend="reference")[what]
        assert_close(value, reference, SCAN | {dtype: 2 * SCAN[dtype]}, what)  # d_out was rounded, too


def test_every_argument_of_another_dtype() -> None:
    """Computed in the widest, at least float32; the output has the dtype of x, each gradient that of its argument."""
    x = filters(2, 20, 30, 4)
    x |= {"x": x["x"].bfloat16(), "bias": x["bias"].half()}
    for wide in (torch.float32, torch.float64):
        x["weight"] = x["weight"].to(wide)
        got = run(x, backend="native")
        expected = causal_conv(**{name: t.to(wide) for name, t in x.items()}, backend="native")
        assert torch.equal(got["output"], expected.bfloat16())
        assert [got[f"gradient of {name}"].dtype for name in x] == [torch.bfloat16, wide, torch.float16]
        assert causal_conv(**x, backend="reference").dtype == torch.bfloat16


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_silu_over_its_whole_range(dtype: torch.dtype, level: str) -> None:
    """One tap of weight 1 leaves the SiLU alone: each value to the tolerance of itself, from where it is 4e-8 on."""
    x = torch.linspace(-20, 100, 16 * 300, dtype=torch.float64).to(dtype).view(1, 300, 16).mT
    with cpu_level(level):
        got = run({"x": x, "weight": torch.ones(16, 1, dtype=dtype)}, backend="native")
    exact = x.double() * torch.sigmoid(x.double())
    assert ((got["output"] - exact).abs() <= SCAN[dtype] * exact.abs()).all()
    expected = run({"x": x.double(), "weight": torch.ones(16, 1).double()}, backend="reference")
    assert_close(got["gradient of x"], expected["gradient of x"], DERIVATIVES)


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_extreme_passes_as_in_pytorch(level: str) -> None:
    """±100, the largest numbers, infinities and NaN: finite, zero, infinite or NaN exactly where PyTorch's SiLU is."""
    large = [100.0, 88.5, 1e30, 3.4e38, torch.inf]
    special = torch.tensor([*large, *(-x for x in large), torch.nan, 0])
    for x in (special.view(1, 1, -1), special.repeat(32).view(1, -1, 32).mT):
        weight = torch.ones(x.shape[1], 1)
        with cpu_level(level):
            got = run({"x": x, "weight": weight}, backend="native")
        expected = run({"x": x, "weight": weight}, backend="reference")
        for what in ("output", "gradient of x"):
            assert torch.allclose(got[what], expected[what], rtol=1e-6, atol=1e-34, equal_nan=True), what


@pytest.mark.parametrize("layout", [plain, channel_last])
@pytest.mark.parametrize("reverse", [False, True])
def test_nan_goes_no_further_than_the_filter(reverse: bool, layout: Callable[[Tensor], Tensor]) -> None:
    """It shows in the K outputs, and the 2K − 1 gradients, that read it, and changes no bit of any other."""
    clean = filters(2, 33, 140, 4)
    how = {"reverse": reverse, "backend": "native"}
    before = run(clean, **how)
    for k in (0, 1, 63, 64, 100, 139):
        bad = clean["x"].clone()
        bad[1, 5, k] = torch.nan
        after = run(clean | {"x": layout(bad)}, **how)
        for what, back, ahead in (("output", 0, 3), ("gradient of x", 3, 3)):
            first, last = (k - ahead, k + back) if reverse else (k - back, k + ahead)
            touched = torch.zeros(clean["x"].shape, dtype=torch.bool)
            touched[1, 5, max(first, 0) : last + 1] = True
            assert torch.equal(after[what].isnan(), touched), what
            assert torch.equal(after[what][~touched], before[what][~touched]), what


# ── bits ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("K", [4, 3])
@pytest.mark.parametrize("layout", [channel_last, plain])
def test_same_bits_every_time(layout: Callable[[Tensor], Tensor], K: int) -> None:
    """Over runs, numbers of threads, layouts, and whether a sample is alone or in a batch."""
    x = filters(6, 72, 600, K)
    first = run(x, backend="native")
    moved = x | {"x": layout(x["x"])}
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            for _ in range(4):
                for what, value in run(moved, backend="native").items():
                    assert torch.equal(value, first[what]), f"{what} on {count} threads"
    finally:
        torch.set_num_threads(threads)
    whole = causal_conv(**moved, backend="native")
    for i in range(6):
        assert torch.equal(causal_conv(**moved | {"x": moved["x"][i : i + 1]}, backend="native"), whole[i : i + 1])


def test_reference_is_the_definition() -> None:
    """Written out as the sum that the documentation shows."""
    x, weight, bias = filters(1, 2, 6, 3, dtype=torch.float64).values()
    for reverse in (False, True):
        out = causal_conv(x, weight, bias, reverse=reverse, backend="reference")
        for d in range(2):
            for k in range(6):
                places = [(j, k + 2 - j if reverse else k - 2 + j) for j in range(3)]
                total = bias[d] + sum(weight[d, j] * x[0, d, i] for j, i in places if 0 <= i < 6)
                assert_close(out[0, d, k], F.silu(total))
