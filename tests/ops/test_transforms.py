"""What `torch.func` and forward-mode differentiation make of our operators: always the derivative, never zeros."""

from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import functionalize, grad, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap
from torch.utils._pytree import tree_leaves

from tests.native import each_discretization, needs_native
from tests.ops.operators import Call, each_operator, tensors_for
from tests.systems import OPTIONAL, system
from tests.tolerances import DERIVATIVES, VALUES, assert_close
from tustin import selective_scan

pytestmark = [
    needs_native,
    # Of PyTorch itself: the first derivative in forward mode, and `linearize`.
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated"),
    pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node"),
]


def loss(call: Call) -> Call:
    return lambda *tensors: call(*tensors).square().sum()


def tangent(call: Call, x: list[Tensor], v: list[Tensor]) -> Tensor | None:
    """Of dual tensors, without torch.func."""
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(call(*map(forward_ad.make_dual, x, v))).tangent


def gradients(call: Call, x: list[Tensor], v: list[Tensor]) -> Any:
    """Through autograd, of several losses at once."""
    leaves = [t.detach().requires_grad_() for t in x]
    out = call(*leaves)
    both = torch.stack([out.detach(), torch.ones_like(out)])
    return torch.autograd.grad(out, leaves, both, is_grads_batched=True)


def gradients_inside(call: Call, x: list[Tensor], v: list[Tensor]) -> Any:
    """The forward pass outside of vmap, the backward pass inside."""
    leaves = [t.detach().requires_grad_() for t in x]
    out = call(*leaves)
    both = torch.stack([out.detach(), torch.ones_like(out)])
    return vmap(lambda d_out: torch.autograd.grad(out, leaves, d_out, retain_graph=True))(both)


def stacked(x: list[Tensor], v: list[Tensor]) -> list[Tensor]:
    """Two samples."""
    return [torch.stack(pair) for pair in zip(x, v, strict=True)]


def each(x: list[Tensor]) -> tuple[int, ...]:
    return tuple(range(len(x)))


TRANSFORMS: dict[str, Callable[[Call, list[Tensor], list[Tensor]], Any]] = {
    "grad": lambda call, x, v: grad(loss(call), each(x))(*x),
    "vjp": lambda call, x, v: vjp(call, *x)[1](call(*v)),
    "jvp": lambda call, x, v: jvp(call, tuple(x), tuple(v)),
    "jacrev": lambda call, x, v: jacrev(call, each(x))(*x),
    "jacfwd": lambda call, x, v: jacfwd(call, each(x))(*x),
    "hessian": lambda call, x, v: hessian(loss(call))(*x),
    "gradient of a gradient": lambda call, x, v: grad(lambda *x: grad(loss(call))(*x).square().sum(), each(x))(*x),
    "linearize": lambda call, x, v: linearize(call, *x)[1](*v),
    "vmap": lambda call, x, v: vmap(call)(*stacked(x, v)),
    "vmap of grad": lambda call, x, v: vmap(grad(loss(call), each(x)))(*stacked(x, v)),
    "grad of vmap": lambda call, x, v: grad(loss(vmap(call)), each(x))(*stacked(x, v)),
    "vmap of jvp": lambda call, x, v: vmap(lambda *x: jvp(call, x, tuple(v)))(*stacked(x, v)),
    "vmap of vmap": lambda call, x, v: vmap(vmap(call))(*(torch.stack([t, -t]) for t in stacked(x, v))),
    "functionalize": lambda call, x, v: functionalize(call)(*x),
    "dual tensors": tangent,
    "batched gradients": gradients,
    "autograd inside vmap": gradients_inside,
    "jacobian, vectorized": lambda call, x, v: torch.autograd.functional.jacobian(call, tuple(x), vectorize=True),
    "jacobian, forward": lambda call, x, v: torch.autograd.functional.jacobian(
        call, tuple(x), vectorize=True, strategy="forward-mode"
    ),
}
each_transform = pytest.mark.parametrize("transform", TRANSFORMS)


@each_transform
@each_operator
def test_transforms(call: Call, transform: str) -> None:
    """In float32, against the float64 reference."""
    x, v = tensors_for(call), tensors_for(call, seed=1)
    got = TRANSFORMS[transform](call, x, v)
    exact = [[t.double() for t in tensors] for tensors in (x, v)]
    expected = TRANSFORMS[transform](partial(call, backend="reference"), *exact)
    assert len(tree_leaves(got)) == len(tree_leaves(expected)) > 0
    for one, other in zip(tree_leaves(got), tree_leaves(expected), strict=True):
        assert_close(one, other, DERIVATIVES, transform)


@pytest.mark.parametrize("transform", ["vmap", "vjp", "jvp"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@each_operator
def test_half_precision_is_rounded_once(call: Call, dtype: torch.dtype, transform: str) -> None:
    """As without a transform."""
    x, v = ([t.to(dtype) for t in tensors_for(call, seed=seed)] for seed in (0, 1))
    got = TRANSFORMS[transform](call, x, v)
    exact = [[t.double() for t in tensors] for tensors in (x, v)]
    rounded: Call = lambda *x: call(*x, backend="reference").to(dtype).double()  # noqa: E731
    expected = TRANSFORMS[transform](rounded if transform == "vjp" else partial(call, backend="reference"), *exact)
    for one, other in zip(tree_leaves(got), tree_leaves(expected), strict=True):
        assert one.dtype == dtype
        assert_close(one, other, VALUES, transform)


@each_operator
def test_vmap_over_any_arguments(call: Call) -> None:
    """And over any of their dimensions: the same as one after the other."""
    x, y = tensors_for(call), tensors_for(call, seed=1)
    for count in range(1, len(x) + 1):
        for chosen in combinations(range(len(x)), count):
            dims = [i % (t.ndim + 1) - (i % 2) * (t.ndim + 1) if i in chosen else None for i, t in enumerate(x)]
            both = [t if d is None else torch.stack([t, s], d) for t, s, d in zip(x, y, dims, strict=True)]
            got = vmap(call, in_dims=tuple(dims))(*both)
            for i in range(2):
                one = call(*(t if d is None else t.select(d, i) for t, d in zip(both, dims, strict=True)))
                assert_close(got[i], one, what=f"in_dims {dims}")


@pytest.mark.parametrize("softplus", [False, True])
@each_discretization
def test_forward_is_backward(discretization: str, softplus: bool) -> None:
    """The Jacobian of every rule and every argument, forwards; backwards it is the native kernel that computes it."""
    x = system(1, 2, 3, 2, optional=OPTIONAL, discretization=discretization, dtype=torch.float64)

    def outputs(*tensors: Tensor) -> tuple[Tensor, ...]:
        how = {"delta_softplus": softplus, "discretization": discretization, "return_last_state": True}
        return tuple(selective_scan(**dict(zip(x, tensors, strict=True)), **how))

    forwards = jacfwd(outputs, tuple(range(len(x))))(*x.values())
    backwards = torch.autograd.functional.jacobian(outputs, tuple(x.values()))
    for got, expected in zip(tree_leaves(forwards), tree_leaves(backwards), strict=True):
        assert_close(got, expected, DERIVATIVES)


@each_operator
@pytest.mark.parametrize("transform", ["grad", "jvp", "vmap"])
def test_transforms_can_be_compiled(call: Call, transform: str, own_caches: None) -> None:
    x, v = tensors_for(call), tensors_for(call, seed=1)
    compiled = torch.compile(lambda: TRANSFORMS[transform](call, x, v), fullgraph=True, backend="aot_eager")
    expected = tree_leaves(TRANSFORMS[transform](call, x, v))
    for got, one in zip(tree_leaves(compiled()), expected, strict=True):
        assert_close(got, one, DERIVATIVES)


@each_operator
def test_exported_programs_can_be_transformed(call: Call, own_caches: None) -> None:
    """By torch.func; dual tensors they refuse in one sentence."""

    class Layer(torch.nn.Module):
        def forward(self, *x: Tensor) -> Tensor:
            return call(*x)

    x, v = tensors_for(call), tensors_for(call, seed=1)
    exported = torch.export.export(Layer(), tuple(x)).module()
    for got, expected in zip(jvp(exported, tuple(x), tuple(v)), jvp(call, tuple(x), tuple(v)), strict=True):
        assert_close(got, expected, DERIVATIVES)
    with pytest.raises(NotImplementedError, match=r"exported program, forward-mode derivatives need torch.func.jvp"):
        tangent(exported, x, v)
    with forward_ad.dual_level():
        assert torch.equal(exported(*x), exported(*x))
