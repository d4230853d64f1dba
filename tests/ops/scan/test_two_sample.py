"""A rule that weighs two input samples runs through the same scan: the true first-order hold.

h_k = e^z·h_{k−1} + Δφ2·v_k + Δ(φ1 − φ2)·v_{k−1}
"""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from tests import convergence
from tests.systems import system
from tests.tolerances import assert_close
from tests.two_sample import TRUE_FOH
from tustin import DISCRETIZATIONS, register, selective_scan

RUN = {"discretization": "true_foh", "backend": "reference"}


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    register(TRUE_FOH)
    yield
    del DISCRETIZATIONS[TRUE_FOH.name]


def test_exact_on_ramps() -> None:
    """h' = ah + b(c + st) is solved exactly, with uneven steps; the state before the first token carries b·u(0)."""
    a, b, c, s, h0 = -1.7, 2.0, 0.5, 3.0, -0.4
    delta = torch.tensor([0.1, 0.7, 0.02, 1.5, 0.3], dtype=torch.float64)
    t = delta.cumsum(0)
    particular = lambda t: -b * (c + s * t) / a - b * s / a**2  # noqa: E731
    exact = (h0 - particular(0.0)) * (a * t).exp() + particular(t)
    one = torch.ones(1, 1, dtype=torch.float64)
    start = torch.tensor([h0, b * c], dtype=torch.float64).view(1, 1, 1, 2)
    y = selective_scan((c + s * t)[None, None], delta[None, None], a * one, b * one, one, **RUN, initial_state=start)
    assert_close(y[0, 0], exact)


def test_declared_orders_are_measured() -> None:
    """Second order on a smooth input, where every rule of one sample is first."""
    smooth = convergence.errors(TRUE_FOH, convergence.smooth_input, convergence.smooth_solution)
    assert convergence.slopes(smooth) == pytest.approx([TRUE_FOH.order] * 3, abs=0.1)
    held = convergence.errors(TRUE_FOH, convergence.held_input, convergence.held_solution)
    assert convergence.slopes(held) == pytest.approx([TRUE_FOH.held_order] * 3, abs=0.1)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("form", ["constant", "token", "grouped"])
def test_split_in_two_equals_whole(form: str, reverse: bool) -> None:
    """The last state (batch, D, N, 2) is the state and the newest B u: enough to go on from, in either direction."""
    x = system(2, 4, 9, 3, B=form, C="constant", dtype=torch.float64)
    whole, last = selective_scan(**x, **RUN, reverse=reverse, return_last_state=True)
    parts = [slice(0, 4), slice(4, 9)]
    state, pieces = None, {}
    for i in reversed(range(2)) if reverse else range(2):
        cut = {k: v if v.ndim == 2 else v[..., parts[i]] for k, v in x.items()}
        pieces[i], state = selective_scan(**cut, **RUN, reverse=reverse, initial_state=state, return_last_state=True)
        assert state.shape == (2, 4, 3, 2)
    assert_close(torch.cat([pieces[0], pieces[1]], -1), whole)
    assert_close(state, last)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("L", [1, 3])
def test_gradcheck(L: int, reverse: bool) -> None:
    x = system(1, 2, L, 2, dtype=torch.float64)
    x["initial_state"] = torch.randn(1, 2, 2, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    names = list(x)

    def scan(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        arguments = dict(zip(names, tensors, strict=True))
        return selective_scan(**arguments, **RUN, reverse=reverse, return_last_state=True)

    assert torch.autograd.gradcheck(scan, [t.requires_grad_() for t in x.values()])


def test_state_of_the_wrong_shape_is_refused() -> None:
    x = system(2, 4, 3, 3)
    with pytest.raises(ValueError, match=r"initial_state has shape \(2, 4, 3\), expected \(2, 4, 3, 2\)"):
        selective_scan(**x, **RUN, initial_state=torch.zeros(2, 4, 3))
