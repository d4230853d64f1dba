"""Triton's scan, run by its interpreter, against the float64 reference and mpmath; test_triton.py starts it."""

import math
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

from tests.discretize import judge
from tests.discretize.test_accuracy import grid, relative_error
from tests.interpreter import degrade, patch_once, round_as_a_gpu_does
from tests.native import Arguments, run, weight_for
from tests.ops.scan.test_native import assert_same_bits
from tests.ops.scan.test_native_accuracy import arguments_of, covering, name_of
from tests.ops.scan.test_op import operator_arguments
from tests.ops.scan.triton_step import evaluated, exactly
from tests.systems import FUSED, OPTIONAL, cast, system
from tests.tolerances import DERIVATIVES, SCAN, VALUES, assert_close
from tustin import DISCRETIZATIONS, selective_scan
from tustin.ops.scan import triton as launcher
from tustin.ops.scan.arguments import Options, Tensors
from tustin.ops.scan.triton_discretizations import DISCRETIZATIONS as FUNCTIONS
from tustin.ops.scan.triton_elementary import softplus

patch_once()
round_as_a_gpu_does()

each_discretization = pytest.mark.parametrize("discretization", FUSED)
each_direction = pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
each_regime = pytest.mark.parametrize("cut", [False, True], ids=["whole", "cut"])
CHUNK = launcher.CHUNK


@pytest.fixture(autouse=True)
def whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """One segment, so that a test says when it wants several."""
    monkeypatch.setattr(launcher, "SHORTEST_SEGMENT", 1 << 30)


def cut_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many segments as there are chunks, as for few rows and a long sequence."""
    monkeypatch.setattr(launcher, "SHORTEST_SEGMENT", CHUNK)


def assert_follows(x: Arguments, least: float = 0.0, but: tuple[str, ...] = (), **how: object) -> None:
    """It equals the float64 reference, as tests.native demands it of the native backend."""
    weight = weight_for(x)
    expected = run(cast(x, torch.float64), weight, backend="reference", **how)
    got = run(x, weight, backend="triton", **how)
    for what, value in expected.items():
        if what.removeprefix("gradient of ") in but:
            continue
        table, floor = (DERIVATIVES, least) if "gradient" in what else (SCAN, 0.0)
        both = (torch.cat([t.flatten(), t.new_tensor([floor])]) for t in (got[what], value))
        assert got[what].shape == value.shape
        assert_close(*both, table, what)


# ── the rules ──────────────────────────────────────────────────────────────────────────────────────────────────────


@each_discretization
def test_coefficients_and_derivatives_match_mpmath(discretization: str) -> None:
    """Values to 1e-6, derivatives to 1e-5 of themselves, for z in [−80, 0] and steps from 1e-6 to 10."""
    delta, z = (t.flatten()[3::7] for t in grid(torch.float32))
    keep = (delta >= 1e-6) & (z < 0) & (z > -79)
    delta, A = delta[keep], (z[keep] / delta[keep]).clamp(max=-1e-15)
    mix = float(judge.MIX) if DISCRETIZATIONS[discretization].mixes else None
    got = evaluated(FUNCTIONS[discretization], delta, A, mix)
    for i, (d, a) in enumerate(zip(delta.tolist(), A.tolist(), strict=True)):
        for value, (name, (expected, tolerance, slack)) in zip(
            got[:, i].tolist(), exactly(discretization, d, a).items(), strict=True
        ):
            error = relative_error(value, expected, slack)
            assert error <= tolerance, f"{name} at Δ = {d}, z = {d * a}: {value}, expected {expected}"


@each_discretization
def test_coefficients_survive_the_instructions_of_a_gpu(discretization: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same tolerances, with 2^x and 1/x as wrong as they may be."""
    degrade(monkeypatch)
    test_coefficients_and_derivatives_match_mpmath(discretization)


@triton.jit
def evaluate_softplus(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, softplus(tl.load(x + i)))


def test_softplus_matches_the_standard_library() -> None:
    """To 1e-6 of itself, also where it is tiny."""
    x = torch.linspace(-60, 40, 1024)
    out = torch.empty_like(x)
    evaluate_softplus[(1,)](x, out, BLOCK=1024)
    expected = torch.tensor([math.log1p(math.exp(v)) for v in x.tolist()], dtype=torch.float64)
    worst = ((out - expected) / expected).abs().max()
    assert worst <= VALUES[torch.float32] * 4  # e^x itself is good to 6e-8·|x|


# ── the scan ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@each_discretization
@each_direction
@each_regime
def test_every_argument(discretization: str, reverse: bool, cut: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Output, last state, and all nine gradients, for tokens in two segments or one."""
    if cut:
        cut_time(monkeypatch)
    x = system(1, 6, CHUNK + 3, 3, optional=OPTIONAL, discretization=discretization)
    assert_follows(x, discretization=discretization, reverse=reverse, delta_softplus=True)


@each_discretization
@pytest.mark.parametrize("L", [CHUNK + 5, pytest.param(197, marks=pytest.mark.wide)])
def test_a_long_memory_survives_the_instructions_of_a_gpu(
    L: int, discretization: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """States that decay over many tokens and over few, with 2^x and 1/x as wrong as they may be."""
    degrade(monkeypatch)
    x = system(1, 4, L, 4, optional=OPTIONAL, discretization=discretization)
    x["A"] = -torch.tensor([0.003, 0.1, 0.7, 2.0 if discretization == "rk4_raw" else 16.0]).repeat(4, 1)
    x["delta"] = x["delta"] / 2
    assert_follows(x, discretization=discretization)


FACTORS: dict[str, tuple] = {
    "L": (1, CHUNK - 1, CHUNK, 2 * CHUNK + 1),
    "D": (1, 4, 6),
    "N": (1, 3, 16),
    "batch": (1, 2),
    "B": ("constant", "token", "few"),
    "C": ("constant", "token", "many"),
    "layout": ("channel_last", "sliced", "batch_inside", "expanded"),
    "reverse": (False, True),
    "delta_softplus": (False, True),
    "optional": ((), OPTIONAL, ("D",), ("z", "delta_bias"), ("initial_state",)),
    "cut": (False, True),
}
WIDE_FACTORS = FACTORS | {
    "L": (1, 2, 31, 33, 63, 70),
    "D": (1, 5, 12, 33),
    "N": (1, 7, 16, 64),
    "batch": (1,),
    "B": ("constant", "token", "few", "many"),
    "C": ("constant", "token", "few", "many"),
    "layout": ("plain", "channel_last", "sliced", "batch_inside", "expanded", "mixed"),
}


def with_discretizations(cases: list[dict]) -> list[tuple[dict, str]]:
    """Each case with one rule after the other: what is particular to one is arithmetic, and knows no shapes."""
    names = list(FUSED)
    return [(case, names[i % len(names)]) for i, case in enumerate(cases)]


@pytest.mark.parametrize(("case", "discretization"), with_discretizations(covering(0, FACTORS)), ids=name_of)
def test_shapes_layouts_and_forms(case: dict, discretization: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any two values of any two factors occur together."""
    if case["cut"]:
        cut_time(monkeypatch)
    x, how = arguments_of(case, discretization)
    assert_follows(x, least=0.1, **how)


@pytest.mark.wide
@pytest.mark.parametrize(("case", "discretization"), with_discretizations(covering(1, WIDE_FACTORS)), ids=name_of)
def test_many_more_shapes_layouts_and_forms(case: dict, discretization: str, monkeypatch: pytest.MonkeyPatch) -> None:
    test_shapes_layouts_and_forms(case, discretization, monkeypatch)


@pytest.mark.wide
@each_discretization
@pytest.mark.parametrize(
    ("steps", "cut"), [((1e-3, 0.1), True), ((0.69, 0.70), False)], ids=["Mamba, cut", "ViM backwards, whole"]
)
def test_initial_values_of_real_models(
    steps: tuple[float, float], cut: bool, discretization: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A = −1 … −16 with Mamba's initial steps, and with those of ViM's second direction, over an image's tokens."""
    if cut:
        cut_time(monkeypatch)
    x = system(1, 4, 197, 16, optional=("D", "z"))
    x["A"] = -torch.arange(1.0, 17).repeat(4, 1) * (0.2 if discretization == "rk4_raw" else 1)
    x["delta"] = steps[0] * (steps[1] / steps[0]) ** ((x["delta"] - 0.05) / 1.95)
    assert_follows(x, discretization=discretization)


@each_discretization
def test_every_size_of_A(discretization: str) -> None:
    """At zero, near it, and above it: growth."""
    sizes = torch.tensor([0.0, -1e-38, -1e-12, -1e-6, -1e-4, -0.01, -0.1, -0.26, 1e-3, 0.2])
    x = system(1, len(sizes), 6, 2, optional=("initial_state",), discretization=discretization)
    x["A"] = sizes[:, None].repeat(1, 2)
    assert_follows(x, discretization=discretization)


def test_rk4_limits_its_step_whatever_the_signs() -> None:
    """By z = ΔA: a negative step with a growing A is limited as a positive one with a decaying A."""
    x = system(1, 4, 6, 3, optional=("initial_state",), discretization="rk4")
    x["delta"] = x["delta"] * torch.tensor([1.0, -1.0, 1.0, -1.0])[:, None]
    x["A"] = x["A"] * torch.tensor([1.0, -1.0, -0.05, 0.05])[:, None]
    assert (x["delta"] * x["A"].max(1).values[:, None]).min() < -1.6
    assert_follows(x, discretization="rk4")


@pytest.mark.filterwarnings("ignore:.* encountered in")  # in the polynomials for small z, where they are not taken
@pytest.mark.parametrize("discretization", ["mamba", "bil", "hoh3", "rk4"])
@pytest.mark.parametrize("step", [0.0, 1e-6, 12.0, 1e5])
def test_every_size_of_step(step: float, discretization: str) -> None:
    """From Δ = 0 to z = −4e5. Where e^z has vanished, the gradients that live off it alone are not judged."""
    x = system(1, 4, 4, 3, optional=("initial_state", "z"), discretization=discretization)
    x["delta"] = step * (0.5 + 0.5 * x["delta"] / x["delta"].max())
    forgotten = ("A", "delta", "initial_state") if step > 12 else ()
    assert_follows(x, discretization=discretization, least=1e-6, but=forgotten)


def test_no_batch() -> None:
    """An empty batch has an empty output, and gradients that are zero where they are shared."""
    assert_follows(system(0, 4, 5, 2, B="constant", C="grouped", optional=OPTIONAL), discretization="bil")


@pytest.mark.parametrize("reverse", [False, True])
def test_offsets_beyond_32_bits(reverse: bool, tmp_path: Path) -> None:
    """Strides of over 2³¹ elements, in a file that is nearly all hole."""
    far = (1 << 31) + 64
    memory = torch.from_file(str(tmp_path / "far"), shared=True, size=4 * far, dtype=torch.float32)
    x = system(2, 3, 4, 2)
    spread = dict(x)
    for place, (name, strides) in enumerate({"u": (far, 20, 1), "delta": (1, far, 2), "B": (50, 1, far)}.items()):
        spread[name] = memory[1000 * place :].as_strided(x[name].shape, strides).copy_(x[name])
    how = {"discretization": "zoh", "reverse": reverse, "backend": "triton"}
    assert_same_bits(run(spread, weight_for(x), **how), run(x, weight_for(x), **how), "far apart in memory")


@each_regime
def test_same_bits_every_time(cut: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over runs and layouts."""
    if cut:
        cut_time(monkeypatch)
    x = system(1, 12, CHUNK + 3, 3, optional=OPTIONAL, discretization="pol")
    how = {"discretization": "pol", "backend": "triton", "delta_softplus": True}
    first = run(x, weight_for(x), **how)
    assert_same_bits(run(x, weight_for(x), **how), first, "another run")
    moved = x | {name: x[name].mT.contiguous().mT for name in ("u", "delta", "z", "B", "C")}
    assert_same_bits(run(moved, weight_for(x), **how), first, "another layout")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("discretization", ["bil", "hoh"])
def test_16_bit_is_float32_rounded_once(discretization: str, dtype: torch.dtype) -> None:
    """The same bits as float32 on the same values, rounded at the end; the gradients as those of rounded values."""
    x = system(1, 6, CHUNK + 2, 3, optional=OPTIONAL, discretization=discretization)
    x = {name: t.to(dtype) if name in ("u", "delta", "B", "C", "z") else t for name, t in x.items()}
    how = {"discretization": discretization, "delta_softplus": True, "backend": "triton"}
    weight = weight_for(x).to(dtype)
    got, wide = run(x, weight, **how), run(cast(x, torch.float32), weight, **how)
    for what, value in wide.items():
        assert torch.equal(got[what], value.to(got[what].dtype)), what
    assert {got[f"gradient of {name}"].dtype for name in ("u", "delta", "B", "C", "z")} == {dtype}


@each_direction
def test_nan_is_neither_hidden_nor_spread(reverse: bool) -> None:
    """A NaN in any argument shows exactly where the reference shows it, and changes no bit anywhere else."""
    clean = system(2, 6, 3, 2, C="grouped", optional=OPTIONAL, discretization="zoh")
    how = {"discretization": "zoh", "reverse": reverse, "delta_softplus": True, "return_last_state": True}
    before = selective_scan(**clean, **how, backend="triton")
    for name, t in clean.items():
        bad = t.clone()
        bad[tuple(size * 2 // 3 for size in t.shape)] = torch.nan
        expected = selective_scan(**{**clean, name: bad}, **how, backend="reference")
        got = selective_scan(**{**clean, name: bad}, **how, backend="triton")
        for a, b, c in zip(got, expected, before, strict=True):
            assert torch.equal(a.isnan(), b.isnan()), name
            assert torch.equal(a[~a.isnan()], c[~a.isnan()]), name
        assert got[0].isnan().any()


# ── the operator ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("own_caches")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # opcheck looks at it
@pytest.mark.parametrize(
    ("form", "optional", "discretization"),
    [("constant", (), "zoh"), ("grouped", OPTIONAL, "zoh"), ("token", OPTIONAL, "exptrap")],
    ids=["bare", "all", "two samples"],
)
def test_opcheck(form: str, optional: tuple[str, ...], discretization: str) -> None:
    """PyTorch's own examination: what the operator returns is laid out as it says beforehand."""
    x = system(1, 4, 3, 2, B=form, optional=optional, discretization=discretization)
    arguments = operator_arguments(x, discretization)
    torch.library.opcheck(torch.ops.tustin.selective_scan.default, arguments)


def test_warm_up_leaves_nothing_behind() -> None:
    x = system(1, 4, 5, 2, optional=OPTIONAL)
    before = {name: t.clone() for name, t in x.items()}
    assert launcher.warm_up(Tensors(**x), Options(False, "bil", False)) is None
    assert_same_bits(x, before, "after the warm-up")


def test_a_weight_of_one_on_the_newest_sample_is_mamba_to_the_bit() -> None:
    x = system(1, 6, CHUNK + 3, 3, optional=("D", "z", "delta_bias"))
    expected = selective_scan(**x, backend="triton")
    for mix in (1, torch.ones_like(x["u"])):
        assert torch.equal(selective_scan(**x, discretization="exptrap", mix=mix, backend="triton"), expected)


@each_direction
@pytest.mark.parametrize("discretization", [name for name in FUSED if DISCRETIZATIONS[name].taps == 2])
def test_two_samples_split_in_two_equal_the_whole(discretization: str, reverse: bool) -> None:
    """The last state has v of the last token, also where the tokens are not a multiple of those taken at once."""
    x = system(2, 6, 9, 3, B="constant", optional=("mix", "initial_state"), discretization=discretization)
    run = {"discretization": discretization, "backend": "triton", "reverse": reverse, "return_last_state": True}
    whole, last = selective_scan(**x, **run)
    state, pieces = x["initial_state"], {}
    parts = [slice(0, 5), slice(5, 9)]
    for i in reversed(range(2)) if reverse else range(2):
        cut = {k: v[..., parts[i]] if v.shape[-1:] == (9,) else v for k, v in x.items()}
        pieces[i], state = selective_scan(**cut | {"initial_state": state}, **run)
    assert_close(torch.cat([pieces[0], pieces[1]], -1), whole, SCAN)
    assert_close(state, last, SCAN)


def test_auto_takes_it() -> None:
    x = system(1, 4, 5, 2)
    assert torch.equal(selective_scan(**x), selective_scan(**x, backend="triton"))


def test_native_makes_room() -> None:
    """The CPU has one fused implementation, here the interpreter; asking for the other says why it is not there."""
    with pytest.raises(RuntimeError, match="TRITON_INTERPRET=1 gives the CPU to Triton's interpreter"):
        selective_scan(**system(), backend="native")


def test_float64_is_left_to_the_reference() -> None:
    x = system(dtype=torch.float64)
    with pytest.raises(RuntimeError, match="'triton' cannot be used: it has no float64"):
        selective_scan(**x, backend="triton")
    with pytest.warns(UserWarning, match="because the triton backend cannot run it: it has no float64"):
        assert torch.equal(selective_scan(**x), selective_scan(**x, backend="reference"))
