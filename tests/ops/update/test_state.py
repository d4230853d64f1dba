"""Updates token by token are the scan of all tokens: every rule, dtype and layout of the state, to the bit."""

import pytest
import torch
from torch import Tensor

from tests.native import LEVELS, cpu_level, each_discretization, needs_native
from tests.ops.update.tokens import sequence, token, updates
from tests.systems import cast, each_run
from tests.tolerances import SCAN, assert_close
from tustin import selective_scan, selective_state_update

SHAPES = [(1, 1, 1), (2, 5, 7), (3, 33, 16), (1, 48, 64)]


@each_run
@pytest.mark.parametrize(("batch", "D", "N"), SHAPES)
def test_updates_are_the_scan(backend: str, discretization: str, batch: int, D: int, N: int) -> None:
    x = sequence(discretization, batch=batch, D=D, N=N, L=6)
    state = x["initial_state"].clone()
    y = updates(x, state, delta_softplus=True, discretization=discretization, backend=backend)
    expected, last = selective_scan(
        **cast(x, torch.float64),
        delta_softplus=True,
        discretization=discretization,
        backend="reference",
        return_last_state=True,
    )
    assert_close(y, expected, SCAN)
    assert_close(state, last, SCAN)


@needs_native
@each_discretization
@pytest.mark.parametrize("B", ["token", "grouped"])
def test_the_same_bits_as_the_scan(discretization: str, B: str) -> None:
    """On every instruction set; so a text does not depend on how many of its tokens came as the prompt."""
    x = sequence(discretization, D=38, N=6, L=40, B=B)
    for level in LEVELS:
        with cpu_level(level):
            state = x["initial_state"].clone()
            y = updates(x, state, discretization=discretization)
            expected, last = selective_scan(**x, discretization=discretization, return_last_state=True)
            if state.ndim == 3:
                assert torch.equal(y, expected)
                assert torch.equal(state, last)
            else:  # B u of the token before, kept in the state, has been rounded
                assert_close(y, expected, SCAN)
                assert_close(state, last, SCAN)


@needs_native
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("state_dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(dtype: torch.dtype, state_dtype: torch.dtype) -> None:
    """The state is rounded to its dtype after each token, the output to that of u, and nothing in between."""
    x = sequence(dtype=dtype, D=20, N=5, L=1)
    state = x["initial_state"].to(state_dtype)
    x["initial_state"] = state.clone()
    y = updates(x, state)
    expected, last = selective_scan(**cast(x, torch.float64), return_last_state=True, backend="reference")
    assert (y.dtype, state.dtype) == (dtype, state_dtype)
    assert_close(y, expected, SCAN)
    assert_close(state, last, SCAN)


def every_second(t: Tensor) -> Tensor:
    """The part of a cache of several heads."""
    return torch.stack([t, torch.full_like(t, torch.nan)], 1)[:, 0]


@pytest.mark.parametrize("layout", [every_second, lambda t: t.mT.contiguous().mT, lambda t: torch.cat([t, t])[::2]])
def test_a_state_of_any_strides_is_overwritten(layout) -> None:  # type: ignore[no-untyped-def]
    x = sequence(batch=4, D=6, L=3)
    state = x["initial_state"].clone()
    expected = updates(x, state)
    strided = layout(torch.zeros_like(state)).copy_(x["initial_state"])
    assert not strided.is_contiguous()
    assert torch.equal(updates(x, strided), expected)
    assert torch.equal(strided, state)


def test_inputs_of_any_strides() -> None:
    """As a linear layer leaves them: parts of one projection."""
    x = sequence(D=6, N=4, L=1)
    wide = torch.cat([token(x, 0)[name] for name in ("B", "C", "u", "delta", "z")], -1)
    B, C, u, delta, z = wide.split([4, 4, 6, 6, 6], -1)
    states = [x["initial_state"].clone() for _ in range(2)]
    rest = {name: x[name] for name in ("A", "D", "delta_bias")}
    got = selective_state_update(states[0], u, delta, B=B, C=C, z=z, **rest)
    assert torch.equal(got, selective_state_update(states[1], **token(x, 0)))
    assert torch.equal(*states)


def test_an_empty_batch() -> None:
    x = sequence(batch=0, L=1)
    assert updates(x, x["initial_state"]).shape == (0, 4, 1)


def test_a_rule_of_two_samples() -> None:
    """Its state holds the newest product B u beside h."""
    x = sequence("true_foh", L=5)
    state = x["initial_state"].clone()
    y = updates(x, state, discretization="true_foh", backend="reference")
    how = {"discretization": "true_foh", "backend": "reference", "return_last_state": True}
    expected, last = selective_scan(**x, **how)  # type: ignore[arg-type]
    assert torch.equal(y, expected)
    assert torch.equal(state, last)


# ── in place, and gradients ──────────────────────────────────────────────────────────────────────────────────────────


def test_autograd_sees_that_the_state_changed() -> None:
    x = sequence(L=1)
    state = x["initial_state"].clone()
    weight = torch.ones_like(state, requires_grad=True)
    kept = weight * state
    updates(x, state)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        kept.sum().backward()


def test_gradients_flow_through_updates() -> None:
    """Through the outputs and through the state, as through the scan."""
    x = sequence(dtype=torch.float64, L=4)
    gradients = []
    for by_update in (True, False):
        leaves = {name: t.clone().requires_grad_() for name, t in x.items()}
        if by_update:
            state = leaves["initial_state"].clone()
            y = updates(leaves, state, discretization="bil")
        else:
            y, state = selective_scan(**leaves, discretization="bil", return_last_state=True)
        loss = (y.square().sum() + state.square().sum()).backward()
        assert loss is None
        gradients.append({name: t.grad for name, t in leaves.items()})
    for name, gradient in gradients[0].items():
        assert_close(gradient, gradients[1][name], what=name)


def test_without_a_gradient_nothing_is_remembered() -> None:
    x = {name: t.requires_grad_() for name, t in sequence(L=1).items()}
    state = x["initial_state"].detach().clone()
    with torch.no_grad():
        assert not updates(x, state).requires_grad
    assert not state.requires_grad


# ── what it refuses ──────────────────────────────────────────────────────────────────────────────────────────────────

WRONG = {
    "u": (torch.zeros(2, 4, 1), r"u has shape \(2, 4, 1\), expected \(batch, D\)"),
    "state": (torch.zeros(2, 4, 5), r"state has shape \(2, 4, 5\), expected \(2, 4, 3\)"),
    "delta": (torch.zeros(2, 5), r"delta has shape \(2, 5\), expected \(2, 4\)"),
    "A": (torch.zeros(5, 3), r"A has shape \(5, 3\), expected \(D, N\) with D = 4"),
    "B": (torch.zeros(4, 3), r"B has shape \(4, 3\), expected \(batch, N\) = \(2, 3\) or \(batch, G, N\) with G divid"),
    "C": (torch.zeros(2, 3, 3), r"C has shape \(2, 3, 3\), expected .*G dividing 4"),
    "D": (torch.zeros(2, 4), r"D has shape \(2, 4\), expected \(4,\)"),
    "z": (torch.zeros(4), r"z has shape \(4,\), expected \(2, 4\)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_shape(name: str) -> None:
    x = sequence(L=1)
    wrong, words = WRONG[name]
    arguments = {"state": x["initial_state"], **token(x, 0), name: wrong}
    with pytest.raises(ValueError, match=f"selective_state_update: {words}"):
        selective_state_update(**arguments)


def test_other_mistakes() -> None:
    x = sequence(L=1)
    state, tokens = x["initial_state"], token(x, 0)
    with pytest.raises(TypeError, match=r"selective_state_update: state is torch\.complex64; complex numbers are not"):
        selective_state_update(state.to(torch.complex64), **tokens)
    with pytest.raises(TypeError, match="selective_state_update: B must be a tensor, got NoneType"):
        selective_state_update(state, **{**tokens, "B": None})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="delta_softplus must be True or False, got 1"):
        selective_state_update(state, **tokens, delta_softplus=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown discretization 'zho'"):
        selective_state_update(state, **tokens, discretization="zho")
    with pytest.raises(ValueError, match="unknown backend 'gpu'"):
        selective_state_update(state, **tokens, backend="gpu")
    for overlapping in (state[:1].expand_as(state), torch.zeros(99).as_strided(state.shape, (9, 1, 2))):
        with pytest.raises(ValueError, match="state is overwritten, but some of its elements may share memory, as in"):
            selective_state_update(overlapping, **tokens)
