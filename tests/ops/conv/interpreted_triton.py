"""Triton's convolution, run by its interpreter, against the float64 reference; test_triton.py starts it."""

import pytest
import torch

from tests.interpreter import round_as_a_gpu_does
from tests.native import Arguments
from tests.ops.conv.test_conv import LAYOUTS, filters, run
from tests.ops.scan.test_native_accuracy import covering, name_of, sliced
from tests.tolerances import DERIVATIVES, SCAN, assert_close
from tustin.ops.conv import causal_conv

round_as_a_gpu_does()


def assert_follows(x: Arguments, **how: object) -> None:
    """It equals the float64 reference; a gradient is judged by 1 where all of it is smaller."""
    expected = run({name: t.double() for name, t in x.items()}, backend="reference", **how)
    got = run(x, backend="triton", **how)
    for what, value in expected.items():
        table, floor = (DERIVATIVES, 1.0) if "gradient" in what else (SCAN, 0.0)
        both = (torch.cat([t.flatten(), t.new_tensor([floor])]) for t in (got[what], value))
        assert got[what].shape == value.shape
        assert_close(*both, table, what)


CASES = covering(
    0,
    {
        "L": (1, 3, 33, 70),  # a program has 32 tokens
        "D": (1, 7, 33),  # and 32 channels
        "K": (1, 2, 4, 9),  # up to 8 taps are unrolled
        "batch": (1, 2),
        "layout": tuple(LAYOUTS),
        "reverse": (False, True),
        "silu": (True, False),
        "bias": (True, False),
    },
)


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_shapes_and_layouts(case: dict) -> None:
    x = filters(case["batch"], case["D"], case["L"], case["K"], case["bias"])
    x["x"] = LAYOUTS[case["layout"]](x["x"])
    assert_follows(x, reverse=case["reverse"], silu=case["silu"])


def test_float64() -> None:
    """Twelve digits."""
    assert_follows(filters(2, 5, 37, 4, dtype=torch.float64), reverse=True)


def test_no_batch() -> None:
    """An empty batch has an empty output, and gradients of zero."""
    assert_follows(filters(0, 5, 33, 4))
    assert not run(filters(0, 5, 33, 4), backend="triton")["gradient of weight"].any()


def test_parameters_of_any_strides() -> None:
    x = filters(1, 33, 5, 4)
    assert_follows(x | {"weight": x["weight"].T.contiguous().T, "bias": sliced(x["bias"])})
    assert_follows(x | {"weight": x["weight"][:1].expand(33, 4), "bias": x["bias"][:1].expand(33)})


@pytest.mark.parametrize("reverse", [False, True])
def test_offsets_beyond_32_bits(reverse: bool, tmp_path) -> None:
    """Strides of over 2³¹ elements, in a file that is nearly all hole."""
    far = (1 << 31) + 64
    memory = torch.from_file(str(tmp_path / "far"), shared=True, size=4 * far, dtype=torch.float32)
    x = filters(2, 3, 4, 4)
    expected = run(x, reverse=reverse, backend="triton")
    for strides in ((far, 20, 1), (1, far, 2), (50, 1, far)):
        view = memory.as_strided(x["x"].shape, strides).copy_(x["x"])
        for what, value in run(x | {"x": view}, reverse=reverse, backend="triton").items():
            assert torch.equal(value, expected[what]), what


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_16_bit_is_float32_rounded_once(dtype: torch.dtype) -> None:
    """Same bits as float32 on the same values, rounded at the end; the gradients to the tolerance of one rounding."""
    x = filters(2, 37, 40, 4, dtype=dtype)
    wide = causal_conv(**{name: t.float() for name, t in x.items()}, backend="triton")
    assert torch.equal(causal_conv(**x, backend="triton"), wide.to(dtype))
    reference = run({name: t.double() for name, t in x.items()}, backend="reference")
    for what, value in run(x, backend="triton").items():
        assert value.dtype == dtype, what
        assert_close(value, reference[what], SCAN | {dtype: 2 * SCAN[dtype]}, what)  # d_out was rounded, too


def test_every_argument_of_another_dtype() -> None:
    """The output has the dtype of x, each gradient that of its argument."""
    x = filters(1, 5, 9, 4)
    x |= {"x": x["x"].bfloat16(), "bias": x["bias"].half()}
    got = run(x, backend="triton")
    expected = causal_conv(**{name: t.float() for name, t in x.items()}, backend="triton")
    assert torch.equal(got["output"], expected.bfloat16())
    assert [got[f"gradient of {name}"].dtype for name in x] == [torch.bfloat16, torch.float32, torch.float16]


@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")  # numpy's word for it
def test_what_is_extreme_passes_as_in_pytorch() -> None:
    """±100, the largest numbers, infinities and NaN: finite, zero, infinite or NaN exactly where PyTorch's SiLU is."""
    large = [100.0, 88.5, 1e30, 3.4e38, torch.inf]
    x = {"x": torch.tensor([*large, *(-v for v in large), torch.nan, 0]).view(1, 1, -1), "weight": torch.ones(1, 1)}
    got, expected = run(x, backend="triton"), run(x, backend="reference")
    for what in ("output", "gradient of x"):
        assert torch.allclose(got[what], expected[what], rtol=1e-6, atol=1e-34, equal_nan=True), what


def test_nan_goes_no_further_than_the_filter() -> None:
    """It shows in the K outputs, and the 2K − 1 gradients, that read it, and changes no bit of any other."""
    clean = filters(1, 3, 70, 4)
    before = run(clean, backend="triton")
    bad = clean["x"].clone()
    bad[0, 1, 32] = torch.nan
    after = run(clean | {"x": bad}, backend="triton")
    for what, first in (("output", 32), ("gradient of x", 29)):
        touched = torch.zeros(bad.shape, dtype=torch.bool)
        touched[0, 1, first:36] = True
        assert torch.equal(after[what].isnan(), touched), what
        assert torch.equal(after[what][~touched], before[what][~touched]), what


def test_native_makes_room() -> None:
    """The CPU has one fused implementation, here the interpreter; asking for the other says why it is not there."""
    with pytest.raises(RuntimeError, match="TRITON_INTERPRET=1 gives the CPU to Triton's interpreter"):
        causal_conv(**filters(1, 2, 3, 4), backend="native")
