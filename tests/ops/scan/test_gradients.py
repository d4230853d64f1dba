"""Gradients of the scan: against finite differences in float64, for every rule and backend, in all forms."""

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from tests.systems import FORMS, OPTIONAL, cast, each_backend, each_run, system
from tests.tolerances import DERIVATIVES, assert_close
from tustin import DISCRETIZATIONS, selective_scan

each_direction = pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])


def scan_of(x: dict[str, Tensor], **how: object) -> tuple[Callable[..., tuple[Tensor, Tensor]], list[Tensor]]:
    """Output and last state as a function of every tensor argument, and those tensors."""

    def scan(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        return selective_scan(**dict(zip(x, tensors, strict=True)), **how, return_last_state=True)

    return scan, [t.detach().requires_grad_() for t in x.values()]


@each_run
@each_direction
def test_every_argument(backend: str, discretization: str, reverse: bool) -> None:
    """All tensors, the full Jacobian: u, delta, A, B, C, D, z, delta_bias, λ, from the initial to the last state."""
    x = system(1, 2, 3, 2, optional=OPTIONAL, discretization=discretization, dtype=torch.float64)
    assert len(x) == (10 if DISCRETIZATIONS[discretization].mixes else 9)
    assert gradcheck(*scan_of(x, discretization=discretization, reverse=reverse, backend=backend, delta_softplus=True))


@each_run
@each_direction
@pytest.mark.parametrize("forms", list(itertools.product(FORMS, FORMS)), ids="-".join)
def test_every_form(forms: tuple[str, str], backend: str, discretization: str, reverse: bool) -> None:
    """B and C constant, per token and grouped, in all pairs. Random projections of the Jacobian: quicker, as strict."""
    x = system(
        1, 4, 2, 2, B=forms[0], C=forms[1], optional=OPTIONAL, discretization=discretization, dtype=torch.float64
    )
    assert gradcheck(*scan_of(x, discretization=discretization, reverse=reverse, backend=backend), fast_mode=True)


@each_run
@each_direction
@pytest.mark.parametrize(("L", "N"), [(1, 1), (1, 3), (5, 1), (3, 2)])
def test_awkward_sizes(L: int, N: int, backend: str, discretization: str, reverse: bool) -> None:
    """One token, one state, odd lengths, an odd number of channels."""
    x = system(1, 3, L, N, B="grouped", optional=OPTIONAL, discretization=discretization, dtype=torch.float64)
    how = {"discretization": discretization, "reverse": reverse, "backend": backend, "delta_softplus": True}
    assert gradcheck(*scan_of(x, **how), fast_mode=True)


@each_backend
@pytest.mark.parametrize("softplus", [False, True], ids=["step", "softplus"])
@pytest.mark.parametrize("optional", [c for r in range(5) for c in itertools.combinations(OPTIONAL, r)], ids="+".join)
def test_optional_arguments(optional: tuple[str, ...], softplus: bool, backend: str) -> None:
    """Any of them may be missing."""
    x = system(1, 2, 3, 2, optional=optional, dtype=torch.float64)
    assert gradcheck(*scan_of(x, discretization="pol", backend=backend, delta_softplus=softplus), fast_mode=True)


@each_run
def test_where_the_formulas_are_delicate(backend: str, discretization: str) -> None:
    """A = 0, Δ = 0, z = −2 (bilinear's α is 0: nothing may divide by it) and z = z* (`rk4`'s limit) have gradients."""
    x = system(1, 2, 3, 3, optional=("initial_state",), discretization=discretization, dtype=torch.float64)
    x["A"] = torch.tensor([[0.0, -2.0, -1.5960716379833216], [-4.0, 0.0, -0.5]], dtype=torch.float64)
    x["delta"] = torch.tensor([[[1.0, 0.0, 0.3], [0.5, 0.0, 1.2]]], dtype=torch.float64)
    if DISCRETIZATIONS[discretization].steps > 1:  # no parabola goes through two samples of one moment
        x["delta"][..., 1] = 0.1
    assert gradcheck(*scan_of(x, discretization=discretization, backend=backend))


@each_run
@each_direction
def test_float32_follows_float64(backend: str, discretization: str, reverse: bool) -> None:
    """The gradient that training uses, of a loss on output and last state: within 1e-5 of the float64 reference's."""
    x = system(2, 5, 17, 4, B="grouped", optional=OPTIONAL, discretization=discretization)
    how = {"discretization": discretization, "reverse": reverse, "delta_softplus": True}
    got = _gradients(x, backend=backend, **how)
    expected = _gradients(cast(x, torch.float64), backend="reference", **how)
    for name in x:
        assert got[name].dtype == torch.float32
        assert float(expected[name].abs().max()) > 0
        assert_close(got[name], expected[name], DERIVATIVES, what=f"gradient of {name}")


def _gradients(x: dict[str, Tensor], **how: object) -> dict[str, Tensor]:
    scan, tensors = scan_of(x, **how)
    out, last = scan(*tensors)
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    return dict(zip(x, torch.autograd.grad((weight * out).sum() + last.square().sum(), tensors), strict=True))


@each_backend
def test_gradients_have_the_dtype_of_their_argument(backend: str) -> None:
    """bfloat16 activations with float32 parameters, as autocast leaves them."""
    x = system(optional=OPTIONAL)
    x = {name: t.bfloat16() if name in ("u", "delta", "B", "C", "z") else t for name, t in x.items()}
    scan, tensors = scan_of(x, discretization="bil", backend=backend)
    out, last = scan(*tensors)
    grads = torch.autograd.grad(out.float().sum() + last.sum(), tensors)
    assert [g.dtype for g in grads] == [t.dtype for t in tensors]
    assert all(g.isfinite().all() and g.abs().max() > 0 for g in grads)


@each_backend
def test_batch_of_none(backend: str) -> None:
    """An empty batch has gradients: zero for what is shared, empty for the rest."""
    x = system(0, 3, 4, 2, optional=OPTIONAL)
    scan, tensors = scan_of(x, backend=backend)
    out, last = scan(*tensors)
    grads = torch.autograd.grad(out.sum() + last.sum(), tensors)
    assert [g.shape for g in grads] == [t.shape for t in tensors]
    assert not any(g.any() for g in grads)


@pytest.mark.parametrize("discretization", ["pol", "rk4"])
def test_second_derivatives(discretization: str) -> None:
    """The reference can be differentiated twice, φ-functions included."""
    x = system(1, 1, 2, 2, optional=("z",), dtype=torch.float64)
    assert gradgradcheck(*scan_of(x, discretization=discretization, backend="reference"))
