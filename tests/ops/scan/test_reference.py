"""What the scan computes: Mamba's recurrence to the letter, and the properties every rule and backend must have.

The reference is the definition; whatever backend is installed is put through the same tests.
"""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.systems import FORMS, OPTIONAL, cast, discretizations_of, each_backend, each_run, system
from tests.tolerances import VALUES, assert_close
from tustin import DISCRETIZATIONS, register, selective_scan

SIZES = [(2, 4, 1, 3), (2, 4, 2, 3), (1, 5, 63, 1), (3, 1, 9, 7), (1, 3, 5, 64), (2, 17, 129, 4), (0, 4, 5, 3)]


# ── Mamba ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def published_mamba(
    u: np.ndarray,
    delta: np.ndarray,
    A: np.ndarray,
    B: np.ndarray,
    C: np.ndarray,
    D: np.ndarray | None = None,
    z: np.ndarray | None = None,
    delta_bias: np.ndarray | None = None,
    delta_softplus: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Mamba's recurrence as its paper and code state it, one number at a time, in float64. Shares nothing with ours."""
    batch, channels, L = u.shape
    out, state = np.zeros_like(u), np.zeros((batch, channels, A.shape[1]))

    def element(matrix: np.ndarray, b: int, d: int, n: int, k: int) -> float:
        if matrix.ndim == 2:
            return matrix[d, n]
        if matrix.ndim == 3:
            return matrix[b, n, k]
        return matrix[b, d // (channels // matrix.shape[1]), n, k]

    for b, d, k in itertools.product(range(batch), range(channels), range(L)):
        step = delta[b, d, k] + (0 if delta_bias is None else delta_bias[d])
        step = np.log1p(np.exp(step)) if delta_softplus else step
        y = 0.0
        for n in range(A.shape[1]):
            state[b, d, n] = np.exp(step * A[d, n]) * state[b, d, n] + step * element(B, b, d, n, k) * u[b, d, k]
            y += element(C, b, d, n, k) * state[b, d, n]
        y += 0 if D is None else D[d] * u[b, d, k]
        out[b, d, k] = y if z is None else y * z[b, d, k] / (1 + np.exp(-z[b, d, k]))
    return out, state


@each_backend
@pytest.mark.parametrize("softplus", [False, True], ids=["step", "softplus"])
@pytest.mark.parametrize(
    "optional", [c for r in range(4) for c in itertools.combinations(OPTIONAL[:3], r)], ids="+".join
)
@pytest.mark.parametrize("C", FORMS)
@pytest.mark.parametrize("B", FORMS)
def test_mamba_reproduces_the_published_recurrence(
    B: str, C: str, optional: tuple[str, ...], softplus: bool, backend: str
) -> None:
    """All combinations of the optional arguments and of the forms of B and C, to 1e-6 (1e-12 in float64)."""
    x = system(2, 4, 5, 3, B=B, C=C, optional=optional)
    out, state = published_mamba(**{k: t.double().numpy() for k, t in x.items()}, delta_softplus=softplus)
    for dtype in (torch.float32, torch.float64):
        given = cast(x, dtype)
        got = selective_scan(**given, delta_softplus=softplus, backend=backend)
        assert_close(got, torch.from_numpy(out))
        same, last = selective_scan(**given, delta_softplus=softplus, backend=backend, return_last_state=True)
        assert torch.equal(same, got)
        assert_close(last, torch.from_numpy(state))


@each_backend
def test_signature_is_mambas(backend: str) -> None:
    """Positionally: u, delta, A, B, C, D, z, delta_bias, delta_softplus, return_last_state; the default is `mamba`."""
    x = system(optional=("D", "z", "delta_bias"))
    got = selective_scan(*x.values(), True, True, backend=backend)
    named = selective_scan(**x, delta_softplus=True, return_last_state=True, discretization="mamba", backend=backend)
    assert_close(got[0], named[0])
    assert_close(got[1], named[1])


# ── the rule is used, and used right ─────────────────────────────────────────────────────────────────────────────────


@each_run
def test_one_step_is_the_rules_alpha_and_beta(backend: str, discretization: str) -> None:
    """L = 1: h_1 = α·h_0 + β·B u, with the coefficients the rule itself gives for this Δ and A."""
    x = system(2, 3, 1, 4, optional=("initial_state", "mix"), discretization=discretization, dtype=torch.float64)
    _, last = selective_scan(**x, discretization=discretization, backend=backend, return_last_state=True)
    delta = x["delta"].expand(-1, -1, 4)
    rule, state = DISCRETIZATIONS[discretization], x["initial_state"]
    h, *past = state.unbind(-1) if rule.state_parts > 1 else [state]
    alpha, betas = rule(delta, delta * x["A"], earlier=tuple(past[rule.taps - 1 :]), mix=x.get("mix"))
    v = x["B"].transpose(1, 2) * x["u"]
    after = alpha * h + sum(beta * sample for beta, sample in zip(betas, (v, *past), strict=False))
    if rule.state_parts > 1:  # then what is to be remembered: the newest inputs, and the newest steps
        assert_close(last[..., 1], v)
        assert rule.steps == 1 or torch.equal(last[..., -1], delta)
        last = last[..., 0]
    assert_close(last, after)


@each_run
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_float32_follows_float64(size: tuple[int, ...], reverse: bool, backend: str, discretization: str) -> None:
    """Awkward sizes (L = 1, 2, 63, 129; odd D; N = 1, 7, 64; batch 0), every argument given, both directions."""
    x = system(*size, B="grouped", optional=OPTIONAL, discretization=discretization)
    run = {"discretization": discretization, "reverse": reverse, "return_last_state": True}
    got = selective_scan(**x, **run, backend=backend)
    expected = selective_scan(**cast(x, torch.float64), **run, backend="reference")
    assert got[0].dtype == got[1].dtype == torch.float32
    assert expected[0].dtype == expected[1].dtype == torch.float64
    assert got[0].shape == size[:3]
    for a, b, what in zip(got, expected, ("output", "last state"), strict=True):
        assert_close(a, b, what=what)


@each_run
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_in_and_out_single_inside(dtype: torch.dtype, backend: str, discretization: str) -> None:
    """The output has u's dtype and is the float32 result rounded once; the state stays float32 and is not rounded."""
    x = cast(system(2, 3, 7, 4, optional=OPTIONAL, discretization=discretization), dtype)
    out, last = selective_scan(**x, discretization=discretization, backend=backend, return_last_state=True)
    exact = selective_scan(
        **cast(x, torch.float64), discretization=discretization, backend="reference", return_last_state=True
    )
    assert (out.dtype, last.dtype) == (dtype, torch.float32)
    assert_close(out, exact[0])
    assert_close(last, exact[1])


@each_backend
def test_mixed_dtypes_compute_in_the_widest(backend: str) -> None:
    """As autocast leaves them: bfloat16 activations with float32 parameters; one float64 argument makes all float64."""
    x = system(optional=OPTIONAL)
    mixed = {name: t.bfloat16() if name in ("u", "delta", "B", "C", "z") else t for name, t in x.items()}
    out, last = selective_scan(**mixed, backend=backend, return_last_state=True)
    exact = selective_scan(**cast(mixed, torch.float64), backend="reference", return_last_state=True)
    assert (out.dtype, last.dtype) == (torch.bfloat16, torch.float32)
    assert_close(out, exact[0])
    assert_close(last, exact[1])
    _, last = selective_scan(**{**x, "A": x["A"].double()}, backend=backend, return_last_state=True)
    exact = selective_scan(**cast(x, torch.float64), backend="reference", return_last_state=True)
    assert_close(last, exact[1])  # to 1e-12, as its dtype demands


@each_run
def test_strides_do_not_matter(backend: str, discretization: str) -> None:
    """Channel-last views, tensors sliced out of NaN and expanded ones give what contiguous ones do."""
    x = system(2, 4, 5, 3, B="grouped", optional=OPTIONAL, discretization=discretization, dtype=torch.float64)
    run = {"discretization": discretization, "backend": backend, "return_last_state": True}
    strided = {name: _strided(t) for name, t in x.items()}
    strided["u"] = x["u"].transpose(1, 2).contiguous().transpose(1, 2)  # (batch, L, D) underneath
    assert not any(t.is_contiguous() for t in strided.values())
    for got, expected in zip(selective_scan(**strided, **run), selective_scan(**x, **run), strict=True):
        assert_close(got, expected)

    one = x["delta"][:, :, :1]
    expanded, repeated = one.expand(-1, -1, 5), one.repeat(1, 1, 5)
    got, expected = (selective_scan(**{**x, "delta": delta}, **run)[0] for delta in (expanded, repeated))
    assert_close(got, expected)


def _strided(t: Tensor) -> Tensor:
    """The same values, every other element of something larger."""
    wide = torch.full((*t.shape, 2), torch.nan, dtype=t.dtype)
    wide[..., 0] = t
    return wide[..., 0]


@each_backend
def test_arguments_are_left_alone(backend: str) -> None:
    x = system(optional=OPTIONAL)
    before = {name: t.clone() for name, t in x.items()}
    selective_scan(**x, delta_softplus=True, reverse=True, discretization="hoh", backend=backend)
    assert all(torch.equal(t, before[name]) for name, t in x.items())


# ── properties ───────────────────────────────────────────────────────────────────────────────────────────────────────

problems = st.fixed_dictionaries(
    {
        "sizes": st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(2, 12), st.integers(1, 5)),
        "B": st.sampled_from(FORMS),
        "C": st.sampled_from(FORMS),
        "seed": st.integers(0, 10_000),
        "discretization": st.integers(0, 99),
        "reverse": st.booleans(),
    }
)


def draw(problem: dict, backend: str) -> tuple[dict[str, Tensor], dict]:
    """All arguments, in float64, and how to run them."""
    names = discretizations_of(backend)
    run = {
        "discretization": names[problem["discretization"] % len(names)],
        "reverse": problem["reverse"],
        "backend": backend,
    }
    forms = {name: problem[name] for name in ("B", "C", "seed")}
    return system(
        *problem["sizes"], **forms, optional=OPTIONAL, discretization=run["discretization"], dtype=torch.float64
    ), run


@each_backend
@given(problem=problems, scale=st.floats(-3, 3))
def test_linear_in_input_and_initial_state(backend: str, problem: dict, scale: float) -> None:
    """scan(u + s·w) = scan(u) + s·scan(w) with everything else fixed, skip connection and gate included."""
    x, run = draw(problem, backend)
    other, _ = draw({**problem, "seed": problem["seed"] + 1}, backend)
    linear = ("u", "initial_state")
    rule = DISCRETIZATIONS[run["discretization"]]
    if rule.steps > 1:  # the steps in a state are no input
        x["initial_state"][..., rule.taps :] = other["initial_state"][..., rule.taps :] = 0
    mixed = selective_scan(**{**x, **{k: x[k] + scale * other[k] for k in linear}}, **run)
    apart = selective_scan(**x, **run) + scale * selective_scan(**{**x, **{k: other[k] for k in linear}}, **run)
    assert_close(mixed, apart)


@each_backend
@given(problem=problems, where=st.floats(0, 1))
def test_causal(backend: str, problem: dict, where: float) -> None:
    """What token k holds changes the outputs from k on, and none before; in reverse, those up to k and none after."""
    x, run = draw(problem, backend)
    k = round(where * (problem["sizes"][2] - 1))
    changed = {name: t.clone() for name, t in x.items()}
    for name in ("u", "delta", "z"):
        changed[name][..., k] += 1.0
    for name in ("B", "C"):
        if changed[name].ndim > 2:
            changed[name][..., k] += 1.0
    difference = (selective_scan(**changed, **run) != selective_scan(**x, **run)).any(0).any(0)
    assert difference[k]
    unreachable = difference[k + 1 :] if run["reverse"] else difference[:k]
    assert not unreachable.any()


@each_backend
@given(problem=problems)
def test_reverse_is_flipping(backend: str, problem: dict) -> None:
    """Walking backwards equals flipping every sequence, walking forwards, and flipping the output."""
    x, run = draw({**problem, "reverse": True}, backend)
    flipped = {
        name: t.flip(-1) if name in ("u", "delta", "z", "mix") or (name in ("B", "C") and t.ndim > 2) else t
        for name, t in x.items()
    }
    out, last = selective_scan(**x, **run, return_last_state=True)
    expected, expected_last = selective_scan(**flipped, **{**run, "reverse": False}, return_last_state=True)
    assert_close(out, expected.flip(-1))
    assert_close(last, expected_last)


@each_backend
@given(problem=problems, where=st.floats(0, 1))
def test_split_in_two_equals_whole(backend: str, problem: dict, where: float) -> None:
    """The returned state is all that has to be handed on: two halves, in walking order, make the whole."""
    x, run = draw(problem, backend)
    L = problem["sizes"][2]
    at = 1 + round(where * (L - 2))
    halves = [slice(0, at), slice(at, L)]
    state, pieces = x.pop("initial_state"), {}
    whole, last = selective_scan(**x, **run, initial_state=state, return_last_state=True)
    for i in (1, 0) if run["reverse"] else (0, 1):
        cut = {k: t[..., halves[i]] if t.ndim > 2 else t for k, t in x.items()}
        pieces[i], state = selective_scan(**cut, **run, initial_state=state, return_last_state=True)
    assert_close(torch.cat([pieces[0], pieces[1]], -1), whole)
    assert_close(state, last)


@each_run
def test_no_step_no_change(backend: str, discretization: str) -> None:
    """Δ = 0 and, with the input off, A = 0: both leave the state exactly where it was, for every rule."""
    x = system(optional=("initial_state",), discretization=discretization)
    still = {**x, "delta": torch.zeros_like(x["delta"])}
    marginal = {**x, "A": torch.zeros_like(x["A"]), "u": torch.zeros_like(x["u"])}
    several = DISCRETIZATIONS[discretization].state_parts > 1
    if several:  # and no input before
        marginal["initial_state"] = torch.cat([x["initial_state"][..., :1], 0 * x["initial_state"][..., 1:]], -1)
    for arguments in (still, marginal):
        _, last = selective_scan(**arguments, discretization=discretization, backend=backend, return_last_state=True)
        h, start = (last[..., 0], x["initial_state"][..., 0]) if several else (last, x["initial_state"])
        assert torch.equal(h, start)


@each_backend
def test_vims_initial_steps_do_not_overflow(backend: str) -> None:
    """z = −11, as ViM's backward direction starts: `rk4` with its limiter stays bounded, `rk4_raw` does not."""
    x = system(1, 2, 150, 16)
    x["delta"], x["A"] = torch.full_like(x["delta"], 0.6931), -torch.arange(1.0, 17).expand(2, 16)
    assert not selective_scan(**x, discretization="rk4_raw", backend=backend).isfinite().all()
    for discretization in discretizations_of(backend):
        if discretization != "rk4_raw":
            assert float(selective_scan(**x, discretization=discretization, backend=backend).abs().max()) < 1e3


# ── your own rule ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_registered_rule_works_by_name(clean_registry: None) -> None:
    """Backward Euler, α = 1/(1 − z) and β = Δ/(1 − z): a few lines, then usable like those built in."""
    register(
        dataclasses.replace(
            DISCRETIZATIONS["bil"],
            name="backward_euler",
            coefficients=lambda delta, z: (1 / (1 - z), (delta / (1 - z),)),
            held_order=1,
        )
    )
    x = system(1, 2, 3, 2, B="constant", C="constant", dtype=torch.float64)
    h, expected = torch.zeros(2, 2).double(), []
    for k in range(3):
        step = x["delta"][0, :, k, None]
        h = (h + step * x["B"] * x["u"][0, :, k, None]) / (1 - step * x["A"])
        expected.append((x["C"] * h).sum(-1))
    assert_close(
        selective_scan(**x, discretization="backward_euler", backend="reference"), torch.stack(expected, -1)[None]
    )


def test_tolerance_table_is_the_one_promised() -> None:
    """The numbers the project states; a backend that needs more has a defect."""
    assert VALUES[torch.float32] == 1e-6
    assert VALUES[torch.float64] == 1e-12
