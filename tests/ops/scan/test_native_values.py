"""The native backend on values where formulas break: A near zero, steps of every size, NaN, and the 16-bit formats."""

import pytest
import torch
from torch import Tensor

from tests.native import LEVELS, Arguments, assert_follows, cpu_level, each_discretization, needs_native
from tests.systems import FUSED, OPTIONAL, system
from tests.tolerances import VALUES, assert_close
from tustin import selective_scan

pytestmark = needs_native

HALVES = [torch.float16, torch.bfloat16]
each_half = pytest.mark.parametrize("dtype", HALVES, ids=str)
D, L, N = 21, 40, 5


# ── A and Δ of every size ────────────────────────────────────────────────────────────────────────────────────────────


@each_discretization
@pytest.mark.parametrize("A", [0.0, -1e-38, -1e-12, -1.1e-6, -1e-4, -0.01, -0.021, -0.1, -0.26, 1e-3, 0.2])
def test_every_size_of_A(A: float, discretization: str) -> None:
    """At zero, near it, just above where the quick formulas begin (1e-6, 0.02 and 0.25), and above zero: growth."""
    x = system(2, D, L, N, optional=("initial_state",), discretization=discretization)
    x["A"] = torch.full_like(x["A"], A)
    assert_follows(x, discretization=discretization)


@each_discretization
def test_small_and_large_A_side_by_side(discretization: str) -> None:
    """One lane of a vector that needs the exact formulas leaves its neighbours as accurate as they were."""
    x = system(2, D, L, N, optional=("initial_state",), discretization=discretization)
    x["A"][::4], x["A"][1::4, ::2], x["A"][2::8, 1] = 0.0, -1e-4, -1e-12
    assert_follows(x, discretization=discretization)


@pytest.mark.parametrize("discretization", [name for name in FUSED if name != "rk4_raw"])
@pytest.mark.parametrize("step", [0.0, 1e-6, 1e-3, 5.0, 12.0, 30.0, 100.0, 1e3, 1e5])
def test_every_size_of_step(step: float, discretization: str) -> None:
    """From Δ = 0 to z = −4e5, far below the −87 where e^z ends: what is left is the equilibrium. (rk4_raw diverges.)

    The kernel knows e^z − 1, and so e^z to 6e-8 of 1, not of itself. The gradients that live off it alone are judged
    only where it has not all but vanished.
    """
    x = system(2, D, 12, N, optional=("initial_state", "z"), discretization=discretization)
    x["delta"] = step * (0.5 + 0.5 * x["delta"] / x["delta"].max())
    forgotten = ("A", "delta", "initial_state") if step > 12 else ()
    assert_follows(x, discretization=discretization, least=1e-6, but=forgotten)


@each_discretization
def test_one_huge_step_among_others(discretization: str) -> None:
    """A token that forgets everything, in the midst of a chunk whose other tokens take the fast path."""
    x = system(2, D, L, N, optional=("initial_state",), discretization=discretization)
    x["delta"][:, ::3, 17] = 2.0 if discretization == "rk4_raw" else 500.0
    x["delta"][:, 1::3, 20] = 0.0
    assert_follows(x, discretization=discretization)


@each_discretization
@pytest.mark.parametrize("steps", [(1e-3, 0.1), (0.69, 0.70)], ids=["Mamba", "ViM backwards"])
def test_initial_values_of_real_models(steps: tuple[float, float], discretization: str) -> None:
    """A = −1 … −16 with Mamba's initial steps, and with those of ViM's second direction, where z starts at −11."""
    x = system(1, 8, 197, 16, B="token", optional=("D", "z"))
    x["A"] = -torch.arange(1.0, 17).repeat(8, 1) * (0.2 if discretization == "rk4_raw" else 1)
    x["delta"] = steps[0] * (steps[1] / steps[0]) ** ((x["delta"] - 0.05) / 1.95)
    assert_follows(x, discretization=discretization)


@each_discretization
def test_softplus_over_its_whole_range(discretization: str) -> None:
    """From underflow over the turn at 0 to the identity above 20, and its slope, with a bias."""
    x = system(1, D, L, N, optional=("delta_bias",), discretization=discretization)
    x["delta"] = torch.linspace(-40, 25, D * L).view(1, D, L)
    x["A"] = x["A"] / 12
    assert_follows(x, discretization=discretization, delta_softplus=True)


@each_discretization
def test_gate_over_its_whole_range(discretization: str) -> None:
    """silu and its slope from −100 to 100."""
    x = system(1, D, L, N, optional=("z", "D"), discretization=discretization)
    x["z"] = torch.linspace(-100, 100, D * L).view(1, D, L)
    assert_follows(x, discretization=discretization)


# ── NaN, and causality ───────────────────────────────────────────────────────────────────────────────────────────────


@each_discretization
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_nan_is_neither_hidden_nor_spread(discretization: str, reverse: bool) -> None:
    """A NaN in any argument shows exactly where the reference shows it, and changes no bit anywhere else."""
    clean = system(2, D, L, N, C="grouped", optional=OPTIONAL, discretization=discretization)
    how = {"discretization": discretization, "reverse": reverse, "delta_softplus": True, "return_last_state": True}
    before = selective_scan(**clean, **how, backend="native")
    for name, t in clean.items():
        bad = t.clone()
        bad[tuple(size * 2 // 3 for size in t.shape)] = torch.nan
        expected = selective_scan(**{**clean, name: bad}, **how, backend="reference")
        got = selective_scan(**{**clean, name: bad}, **how, backend="native")
        for a, b, c in zip(got, expected, before, strict=True):
            assert torch.equal(a.isnan(), b.isnan()), name
            assert torch.equal(a[~a.isnan()], c[~a.isnan()]), name
        assert got[0].isnan().any()


@each_discretization
@pytest.mark.parametrize("level", LEVELS)
def test_causal_to_the_bit(level: str, discretization: str) -> None:
    """Whatever a token holds, an ordinary value or one that leaves the fast path: no bit before it changes."""
    x = system(2, D, 70, N, optional=OPTIONAL, discretization=discretization)
    with cpu_level(level):
        for reverse in (False, True):
            how = {"discretization": discretization, "reverse": reverse, "backend": "native"}
            before = selective_scan(**x, **how)
            for k in (0, 1, 31, 32, 50, 69):
                for step in (0.3, 1e4, torch.nan):
                    changed = {n: t.clone() if n in ("u", "delta", "z", "B", "C") else t for n, t in x.items()}
                    for name in ("u", "z", "B", "C"):
                        changed[name][..., k] += 1
                    changed["delta"][..., k] = step
                    after = selective_scan(**changed, **how)
                    past = slice(k + 1, None) if reverse else slice(0, k)
                    assert torch.equal(after[..., past], before[..., past])
                    assert not torch.equal(after, before)


# ── 16 bits ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def every_value(dtype: torch.dtype) -> Tensor:
    """All 65536 bit patterns, (2048, 32), with what is not finite in the last column."""
    values = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype)
    values = torch.cat([values[values.isfinite()], values[~values.isfinite()]])
    return values.view(32, 2048).T


def same(a: Tensor, b: Tensor) -> bool:
    """Equal, where NaN equals NaN."""
    return torch.equal(a.isnan(), b.isnan()) and torch.equal(a[~a.isnan()], b[~b.isnan()])


@each_half
@pytest.mark.parametrize("channels", [2048, 2045], ids=["whole vectors", "and a rest"])
@pytest.mark.parametrize("layout", ["L", "D"], ids=["L contiguous", "channel last"])
@pytest.mark.parametrize("level", LEVELS)
def test_every_16_bit_value_is_read(level: str, layout: str, channels: int, dtype: torch.dtype) -> None:
    """All bit patterns, subnormals, infinities and NaN included: read as PyTorch reads them, and written back."""
    u = every_value(dtype)[None, :channels]
    u = u.contiguous() if layout == "L" else u.mT.contiguous().mT
    one, zero = torch.ones(channels), torch.zeros(channels, 1)
    with cpu_level(level):
        skip = selective_scan(u, torch.ones(u.shape), zero, zero, zero, one, backend="native")
        wide = selective_scan(u.float(), torch.ones(u.shape), zero, zero + 1, zero + 1, backend="native")
        narrow = selective_scan(u, torch.ones(u.shape), zero, zero + 1, zero + 1, backend="native")
    finite = u.isfinite()
    assert torch.equal(skip[finite], u[finite])
    assert same(narrow, wide.to(dtype))


@each_half
@pytest.mark.parametrize("channels", [48, 45], ids=["whole vectors", "and a rest"])
@pytest.mark.parametrize("layout", ["L", "D"], ids=["L contiguous", "channel last"])
@pytest.mark.parametrize("level", LEVELS)
def test_every_rounding_to_16_bits(level: str, layout: str, channels: int, dtype: torch.dtype) -> None:
    """Each value, each tie between two, and the float32 beside each tie: rounded as PyTorch rounds."""
    finite = every_value(dtype).flatten()
    finite = finite[finite.isfinite()].float().sort().values
    ties = (finite[1:].double() + finite[:-1].double()).div(2).float()
    inf = torch.tensor(torch.inf)
    beyond = torch.tensor([torch.inf, -torch.inf, torch.nan, 3e38, 65519.9, 65520.0, 65536.0, -65520.0])
    values = torch.cat([finite, ties, ties.nextafter(inf), ties.nextafter(-inf), beyond])
    values = torch.cat([values, values.new_zeros(-len(values) % channels)]).view(1, channels, -1)
    # With A = 0, u = 0 and h = 1, the output is C: one group per channel.
    u = torch.zeros(values.shape, dtype=dtype)
    u = u if layout == "L" else u.mT.contiguous().mT
    zero, one = torch.zeros(channels, 1), torch.ones(1, channels, 1)
    with cpu_level(level):
        out = selective_scan(
            u, torch.ones(u.shape), zero, zero, values[:, :, None], initial_state=one, backend="native"
        )
    assert out.dtype == dtype
    assert same(out, values.to(dtype))


def leaves(x: Arguments) -> Arguments:
    return {name: t.detach().clone(memory_format=torch.preserve_format).requires_grad_() for name, t in x.items()}


def backward(x: Arguments, **how: object) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    out, last = selective_scan(**x, **how, backend="native", return_last_state=True)
    return out, last, torch.autograd.grad(out.float().sum() + last.sum(), list(x.values()))


@each_discretization
@each_half
def test_16_bit_is_float32_rounded_once(dtype: torch.dtype, discretization: str) -> None:
    """Same bits as float32 on the same values, rounded at the end; the state is not rounded at all. So gradients."""
    x = system(2, D, L, N, C="grouped", optional=OPTIONAL, discretization=discretization, dtype=dtype)
    narrow, wide = leaves(x), leaves({name: t.float() for name, t in x.items()})
    out, last, gradients = backward(narrow, discretization=discretization, delta_softplus=True)
    wide_out, wide_last, wide_gradients = backward(wide, discretization=discretization, delta_softplus=True)
    assert torch.equal(out, wide_out.to(dtype))
    assert torch.equal(last, wide_last)
    for name, got, expected in zip(x, gradients, wide_gradients, strict=True):
        assert got.dtype == dtype
        assert torch.equal(got, expected.to(dtype)), name


@each_discretization
def test_every_argument_of_another_dtype(discretization: str) -> None:
    """Each tensor has its own dtype and gets a gradient of that; computed in the widest, here float32, then float64."""
    dtypes = [torch.bfloat16, torch.float16, torch.float32]
    x = system(2, D, L, N, B="constant", C="grouped", optional=OPTIONAL, discretization=discretization)
    mixed = leaves({name: t.to(dtypes[i % 3]) for i, (name, t) in enumerate(x.items())})
    for wide in (torch.float32, torch.float64):
        same_values = leaves({name: t.to(wide) for name, t in mixed.items()})
        if wide == torch.float64:
            mixed["delta_bias"] = mixed["delta_bias"].detach().double().requires_grad_()
        out, last, gradients = backward(mixed, discretization=discretization)
        wide_out, wide_last, wide_gradients = backward(same_values, discretization=discretization)
        assert out.dtype == torch.bfloat16
        assert torch.equal(out, wide_out.to(torch.bfloat16))
        assert last.dtype == wide
        assert torch.equal(last, wide_last)
        for name, got, expected in zip(x, gradients, wide_gradients, strict=True):
            assert got.dtype == mixed[name].dtype
            assert_close(got, expected, {**VALUES, torch.float32: 1e-5}, name)


@each_discretization
def test_a_sample_alone_has_the_same_gradients(discretization: str) -> None:
    """Bit for bit, whatever else is in the batch: outputs, states and every gradient that is a sample's own."""
    x = system(8, D, L, N, C="grouped", optional=OPTIONAL, discretization=discretization)
    own = ("u", "delta", "z", "B", "C", "initial_state", "mix")
    out, last, gradients = backward(leaves(x), discretization=discretization, delta_softplus=True)
    for i in range(8):
        alone = leaves({name: t[i : i + 1] if name in own else t for name, t in x.items()})
        one_out, one_last, one = backward(alone, discretization=discretization, delta_softplus=True)
        assert torch.equal(one_out[0], out[i])
        assert torch.equal(one_last[0], last[i])
        for name, a, b in zip(x, one, gradients, strict=True):
            assert name not in own or torch.equal(a[0], b[i]), name
