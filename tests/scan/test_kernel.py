"""The native kernel: as accurate as float32 allows, and the same bits every time."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.systems import OPTIONAL, cast, methods_of, system
from tests.tolerances import DERIVATIVES, SCAN, assert_close
from tustin import METHODS, register, selective_scan
from tustin.discretize import BUILT_IN
from tustin.scan import BACKENDS, native

pytestmark = pytest.mark.skipif(bool(native.missing()), reason=str(native.missing()))
each_method = pytest.mark.parametrize("method", methods_of("native"))

# (batch, D, L, N), B, C, layout, reverse: each awkward value at least once, around the widths of vectors and chunks.
SHAPES = [
    ((6, 1, 1, 1), "token", "token", "token-last", False),
    ((3, 5, 2, 7), "constant", "token", "channel-last", True),
    ((1, 16, 31, 16), "token", "constant", "token-last", True),
    ((2, 33, 32, 1), "constant", "constant", "channel-last", False),
    ((1, 48, 33, 16), "token", "token", "channel-last", True),
    ((2, 36, 63, 16), "grouped", "token", "token-last", True),
    ((1, 6, 129, 64), "grouped", "constant", "channel-last", False),
    ((1, 70, 65, 7), "token", "grouped", "odd", True),
    ((0, 8, 3, 4), "token", "token", "token-last", False),
]


def laid_out(tensor: Tensor, layout: str) -> Tensor:
    """The same values of (batch, D, L), in memory as asked for."""
    if layout == "channel-last":
        return tensor.transpose(1, 2).contiguous().transpose(1, 2)
    if layout == "odd":  # every third element of every second row
        room = tensor.new_full((tensor.shape[0], 2 * tensor.shape[1], 3 * tensor.shape[2]), float("nan"))
        room[:, ::2, 1::3] = tensor
        return room[:, ::2, 1::3]
    return tensor.contiguous()


def results(x: dict[str, Tensor], **how: object) -> dict[str, Tensor]:
    """Output, last state, and the gradient of every argument for fixed random gradients of both."""
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in x.items()}
    out, last = selective_scan(**leaves, return_last_state=True, **how)
    random = torch.Generator().manual_seed(1)
    outgoing = [torch.randn(t.shape, generator=random).to(t.dtype) for t in (out, last)]
    gradients = torch.autograd.grad([out, last], list(leaves.values()), outgoing)
    return {"out": out.detach(), "last_state": last.detach()} | dict(zip(leaves, gradients, strict=True))


def assert_same_bits(got: dict[str, Tensor], expected: dict[str, Tensor], what: str) -> None:
    for name, tensor in expected.items():
        assert torch.equal(got[name], tensor), f"{name} differs: {what}"


@pytest.fixture(params=["baseline", "v2", "v3", "v4"])
def cpu_level(request: pytest.FixtureRequest) -> Iterator[str]:
    before = native.cpu_level()
    try:
        native.set_cpu_level(request.param)
    except ValueError as error:
        pytest.skip(str(error))
    yield request.param
    native.set_cpu_level(before)


def test_it_knows_every_built_in_method() -> None:
    """A rule added in one language and forgotten in the other fails here."""
    assert set(native.method_names()) == {method.name for method in BUILT_IN}


@each_method
@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_agrees_with_the_float64_reference(cpu_level: str, case: tuple, method: str) -> None:
    """Output and every gradient, at each CPU level, over awkward shapes, forms, layouts and directions."""
    shape, B, C, layout, reverse = case
    exact = system(*shape, B=B, C=C, optional=OPTIONAL, method=method, dtype=torch.float64)
    how = {"method": method, "reverse": reverse, "delta_softplus": True}
    expected = results(exact, backend="reference", **how)
    for dtype in (torch.float32, torch.float64):
        x = cast(exact, dtype)
        x |= {name: laid_out(x[name], layout) for name in ("u", "delta", "z")}
        for name, got in results(x, backend="native", **how).items():
            table = SCAN if name in ("out", "last_state") else DERIVATIVES
            assert_close(got, expected[name], table, f"{name} of {method} in {dtype}")


@each_method
@pytest.mark.parametrize("size", [0.0, 1e-12, 1e-4, 0.01, 0.1])
def test_small_A(method: str, size: float) -> None:
    """Where dividing by A would lose everything, and at A = 0 itself."""
    exact = system(1, 5, 40, 3, method=method, dtype=torch.float64)
    exact["A"] = -size * torch.rand(5, 3, dtype=torch.float64)
    exact["A"][0] = -1.0  # beside a channel where it does not
    expected = results(exact, method=method, backend="reference")
    for name, got in results(cast(exact, torch.float32), method=method, backend="native").items():
        assert_close(got, expected[name], SCAN if name in ("out", "last_state") else DERIVATIVES, name)


@pytest.mark.parametrize("method", [m for m in methods_of("native") if m != "rk4_raw"])
def test_long_steps(method: str) -> None:
    """Beyond the range of e^z the state is forgotten and nothing overflows."""
    exact = system(1, 3, 20, 4, dtype=torch.float64)
    exact["delta"][:, :, ::3] = 500.0
    exact["delta"][:, :, 1::3] = 0.0
    expected = results(exact, method=method, backend="reference")
    for name, got in results(cast(exact, torch.float32), method=method, backend="native").items():
        assert_close(got, expected[name], SCAN if name in ("out", "last_state") else DERIVATIVES, name)


@each_method
def test_nan_is_not_hidden_and_the_past_does_not_see_it(method: str) -> None:
    """One bad token spoils its channel from there on, and not a bit before."""
    x = system(1, 20, 70, 4, method=method)
    before = selective_scan(**x, method=method, backend="native")
    for name in ("u", "delta"):
        bad = x | {name: x[name].clone()}
        bad[name][0, 7, 40] = float("nan")
        after = selective_scan(**bad, method=method, backend="native")
        assert after[0, 7, 40:].isnan().all()
        assert torch.equal(after[0, :, :40], before[0, :, :40])
        others = [d for d in range(20) if d != 7]
        assert torch.equal(after[0, others], before[0, others])


@each_method
def test_same_bits_every_time(method: str) -> None:
    """Over runs, numbers of threads, layouts, and whether a sample is alone or in a batch."""
    x = system(8, 40, 70, 5, optional=OPTIONAL, method=method)
    how = {"method": method, "backend": "native", "delta_softplus": True}
    first = results(x, **how)
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            for _ in range(7):
                assert_same_bits(results(x, **how), first, f"another run on {count} threads")
    finally:
        torch.set_num_threads(threads)
    moved = x | {name: laid_out(x[name], "channel-last") for name in ("u", "delta", "z")}
    assert_same_bits(results(moved, **how), first, "another layout")

    per_sample = ("u", "delta", "z", "B", "C", "initial_state")
    whole = selective_scan(**x, **how)
    for i in range(8):
        one = {name: t[i : i + 1] if name in per_sample else t for name, t in x.items()}
        assert torch.equal(selective_scan(**one, **how), whole[i : i + 1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", ["channel-last", "token-last", "odd"])
def test_half_precision_is_float32_with_rounded_ends(dtype: torch.dtype, layout: str) -> None:
    """Inputs are widened exactly, outputs rounded once: the same bits as rounding the float32 result."""
    half = ("u", "delta", "z", "B", "C")
    x = {name: t.to(dtype) if name in half else t for name, t in system(2, 21, 50, 6, optional=OPTIONAL).items()}
    x |= {name: laid_out(x[name], layout) for name in ("u", "delta", "z")}
    wide = {name: t.float() for name, t in x.items()}
    out, last = selective_scan(**x, method="bil", backend="native", return_last_state=True)
    expected, expected_last = selective_scan(**wide, method="bil", backend="native", return_last_state=True)
    assert out.dtype == dtype
    assert torch.equal(out, expected.to(dtype))
    assert last.dtype == torch.float32
    assert torch.equal(last, expected_last)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", ["channel-last", "token-last"])
def test_all_half_precision_numbers_pass_unchanged(dtype: torch.dtype, layout: str) -> None:
    """Every finite one of the 65,536, through the skip connection: subnormals, zeros, the largest."""
    every = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(dtype)
    u = laid_out(every.nan_to_num(0, 0, 0).view(1, 32, 2048), layout)
    zero = torch.zeros(32, 1)
    out = selective_scan(u, torch.zeros_like(u), zero - 1, zero, zero, torch.ones(32), backend="native")
    assert torch.equal(out, u)


@pytest.mark.parametrize("reverse", [False, True])
def test_offsets_beyond_32_bits(reverse: bool, tmp_path: Path) -> None:
    """Strides of over 2³¹ elements, in a file that is nearly all hole."""
    far = (1 << 31) + 64
    memory = torch.from_file(str(tmp_path / "far"), shared=True, size=4 * far, dtype=torch.float32)
    x = system(2, 3, 4, 2)
    spread = dict(x)
    for place, (name, strides) in enumerate({"u": (far, 20, 1), "delta": (1, far, 2), "B": (50, 1, far)}.items()):
        view = memory[1000 * place :].as_strided(x[name].shape, strides)
        spread[name] = view.copy_(x[name])
    how = {"method": "zoh", "reverse": reverse, "backend": "native"}
    assert_same_bits(results(spread, **how), results(x, **how), "far apart in memory")


def test_a_method_of_ones_own_runs_on_the_reference_and_says_so_once(clean_registry: None) -> None:
    """`auto` falls back with one warning; asking for native by name is an error that says why."""
    register(replace(METHODS["bil"], name="mine"))
    x = system()
    with pytest.warns(UserWarning, match="slow reference backend, because the native one cannot: method 'mine'"):
        out = selective_scan(**x, method="mine")
    assert torch.equal(out, selective_scan(**x, method="mine"))  # a second warning would be an error
    assert torch.equal(out, selective_scan(**x, method="bil", backend="reference"))
    with pytest.raises(RuntimeError, match="'native' cannot be used: method 'mine' is not one of those compiled"):
        selective_scan(**x, method="mine", backend="native")
    imitation = replace(METHODS["zoh"], coefficients=METHODS["bil"].coefficients)
    assert BACKENDS["native"].refuses(torch.device("cpu"), imitation)
