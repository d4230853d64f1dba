"""The rules that weigh several input samples, as the scan runs them: what they mean, and what they hand on."""

import pytest
import torch
from torch import Tensor

from tests.systems import OPTIONAL, discretizations_of, each_backend, system
from tests.tolerances import assert_close
from tustin import DISCRETIZATIONS, selective_scan

RULES = [name for name, rule in DISCRETIZATIONS.items() if rule.taps > 1]
each_rule = pytest.mark.parametrize("discretization", RULES)


def skip_unless_has(backend: str, discretization: str) -> None:
    if discretization not in discretizations_of(backend):
        pytest.skip(f"{backend} has no {discretization}")


@each_backend
def test_true_foh_is_exact_on_ramps(backend: str) -> None:
    """h' = ah + b(c + st) is solved exactly, with uneven steps; the state before the first token carries b·u(0)."""
    skip_unless_has(backend, "true_foh")
    a, b, c, s, h0 = -1.7, 2.0, 0.5, 3.0, -0.4
    delta = torch.tensor([0.1, 0.7, 0.02, 1.5, 0.3], dtype=torch.float64)
    t = delta.cumsum(0)
    particular = lambda t: -b * (c + s * t) / a - b * s / a**2  # noqa: E731
    exact = (h0 - particular(0.0)) * (a * t).exp() + particular(t)
    one = torch.ones(1, 1, dtype=torch.float64)
    start = torch.tensor([h0, b * c], dtype=torch.float64).view(1, 1, 1, 2)
    run = {"discretization": "true_foh", "backend": backend, "initial_state": start}
    y = selective_scan((c + s * t)[None, None], delta[None, None], a * one, b * one, one, **run)
    assert_close(y[0, 0], exact)


@each_backend
def test_exptrap_with_all_weight_on_the_newest_sample_is_mamba_to_the_bit(backend: str) -> None:
    skip_unless_has(backend, "exptrap")
    x = system(2, 24, 70, 5, optional=("D", "z", "delta_bias"))
    expected, h = selective_scan(**x, delta_softplus=True, backend=backend, return_last_state=True)
    for mix in (1, torch.ones(()), torch.ones_like(x["u"])):
        out, last = selective_scan(
            **x, delta_softplus=True, discretization="exptrap", mix=mix, backend=backend, return_last_state=True
        )
        assert torch.equal(out, expected)
        assert torch.equal(last[..., 0], h)


@each_backend
def test_a_constant_mix_in_every_spelling(backend: str) -> None:
    """A number, a tensor of one, one for each token: the same bits. And none is a half."""
    skip_unless_has(backend, "exptrap")
    x = system(2, 20, 40, 3)
    run = {"discretization": "exptrap", "backend": backend}
    for value in (0.5, 0.3):
        mixes = [value, torch.tensor(value), torch.full_like(x["u"], value), *([None] if value == 0.5 else [])]
        outs = [selective_scan(**x, **run, mix=mix) for mix in mixes]
        assert all(torch.equal(out, outs[0]) for out in outs)


@each_backend
@each_rule
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("form", ["constant", "token", "grouped"])
def test_split_in_two_equals_whole(form: str, reverse: bool, discretization: str, backend: str) -> None:
    """The last state is the state, the newest B u and the newest steps: enough to go on from, in either direction."""
    skip_unless_has(backend, discretization)
    rule = DISCRETIZATIONS[discretization]
    x = system(2, 4, 9, 3, B=form, C="constant", optional=("mix",), discretization=discretization, dtype=torch.float64)
    run = {"discretization": discretization, "backend": backend, "reverse": reverse}
    whole, last = selective_scan(**x, **run, return_last_state=True)
    parts = [slice(0, 4), slice(4, 9)]
    state, pieces = None, {}
    for i in reversed(range(2)) if reverse else range(2):
        cut = {k: v if v.ndim == 2 else v[..., parts[i]] for k, v in x.items()}
        pieces[i], state = selective_scan(**cut, **run, initial_state=state, return_last_state=True)
        assert state.shape == (2, 4, 3, rule.state_parts)
    assert_close(torch.cat([pieces[0], pieces[1]], -1), whole)
    assert_close(state, last)


@each_backend
@each_rule
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("L", [1, 3])
def test_gradcheck(L: int, reverse: bool, discretization: str, backend: str) -> None:
    skip_unless_has(backend, discretization)
    x = system(1, 2, L, 2, optional=OPTIONAL, discretization=discretization, dtype=torch.float64)
    names = list(x)

    def scan(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        run = {"discretization": discretization, "backend": backend, "reverse": reverse}
        return selective_scan(**dict(zip(names, tensors, strict=True)), **run, return_last_state=True)

    assert torch.autograd.gradcheck(scan, [t.requires_grad_() for t in x.values()])


@each_backend
def test_a_learned_constant_gets_the_gradient_of_all_tokens(backend: str) -> None:
    skip_unless_has(backend, "exptrap")
    x = system(2, 3, 5, 2, dtype=torch.float64)
    run = {"discretization": "exptrap", "backend": backend}
    one = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    all_of_them = torch.full_like(x["u"], 0.3).requires_grad_()
    for mix in (one, all_of_them):
        selective_scan(**x, **run, mix=mix).square().sum().backward()
    assert_close(one.grad, all_of_them.grad.sum())


def test_state_of_the_wrong_shape_is_refused() -> None:
    x = system(2, 4, 3, 3)
    for discretization, parts in (("true_foh", 2), ("true_hoh", 4)):
        message = rf"initial_state has shape \(2, 4, 3\), expected \(2, 4, 3, {parts}\)"
        with pytest.raises(ValueError, match=message):
            selective_scan(**x, discretization=discretization, backend="reference", initial_state=torch.zeros(2, 4, 3))
