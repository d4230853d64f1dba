"""Tensors that are more than numbers in memory: right as an argument and as a gradient, or refused in one sentence."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.profiler import profile

from tests.native import needs_native
from tests.ops.operators import SHAPES, Call, each_operator, tensors_for
from tests.ops.tensor_kinds import (
    UNUSABLE,
    USABLE,
    freed,
    negated,
    out_of_vmap,
    part_of_freed,
    plain,
    transposed_and_freed,
)
from tests.tolerances import DERIVATIVES, SCAN, assert_close

pytestmark = needs_native


@pytest.mark.parametrize("kind", USABLE)
@each_operator
def test_arguments(call: Call, kind: str) -> None:
    """Each argument, and the output."""
    for i in range(len(SHAPES[call])):
        x = tensors_for(call)
        x[i] = USABLE[kind](x[i].abs() if i == 2 and kind == "negated" else x[i])
        expected = call(*(plain(t).double() for t in x), backend="reference")
        assert_close(plain(call(*x)), expected, SCAN, f"argument {i}")


@pytest.mark.parametrize("kind", USABLE)
@each_operator
def test_gradients(call: Call, kind: str) -> None:
    """As they arrive at the backward pass, and of saved arguments."""
    x = [t.requires_grad_() for t in tensors_for(call)]
    exact = [t.detach().double().requires_grad_() for t in x]
    out, expected = call(*x), call(*exact, backend="reference")
    d_out = USABLE[kind](out.detach())
    got = torch.autograd.grad(out, x, d_out)
    for one, other in zip(got, torch.autograd.grad(expected, exact, plain(d_out).double()), strict=True):
        assert_close(plain(one), other, DERIVATIVES)


@each_operator
def test_gradients_of_negated_arguments(call: Call) -> None:
    x = [t.requires_grad_() for t in tensors_for(call)]
    exact = [t.detach().double().requires_grad_() for t in x]
    first, *others = x
    out = call(negated(first), *others)
    expected = call(-exact[0], *exact[1:], backend="reference")
    d_out = torch.ones_like(out)
    for got, other in zip(torch.autograd.grad(out, x, d_out), torch.autograd.grad(expected, exact, d_out), strict=True):
        assert_close(got, other, DERIVATIVES)


@each_operator
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_negated_arguments_of_compiled_code(call: Call, backend: str, own_caches: None) -> None:
    """Not of Inductor, which forgets the sign of such an argument whatever the operator is."""
    first, *others = tensors_for(call)
    assert_close(torch.compile(call, backend=backend)(negated(first), *others), call(-first, *others), SCAN)


@each_operator
def test_negated_inside_compiled_code(call: Call, own_caches: None) -> None:
    first, *others = tensors_for(call)
    compiled = torch.compile(lambda *x: call(torch.complex(first, first).conj().imag, *x), backend="aot_eager")
    assert_close(compiled(*others), call(-first, *others), SCAN)


each_unusable = pytest.mark.parametrize(("make", "sentence"), UNUSABLE.items(), ids=UNUSABLE.values())


@pytest.mark.filterwarnings("ignore:.*to_mkldnn", "ignore:.*quantiz", "ignore:.*nested")  # they tell of their future
@each_unusable
@each_operator
def test_arguments_that_are_refused(call: Call, make: Callable[[Tensor], Tensor], sentence: str) -> None:
    for i in range(len(SHAPES[call])):
        x = tensors_for(call)
        x[i] = make(x[i])
        with pytest.raises((TypeError, RuntimeError), match=sentence) as refusal:
            call(*x, backend="native")
        assert "\n" not in str(refusal.value)


@each_operator
@pytest.mark.parametrize("observed", [False, True], ids=["alone", "profiled"])
def test_gradients_that_are_refused(call: Call, observed: bool) -> None:
    """What else there is PyTorch itself refuses: the gradient must have the device, dtype and layout of the output."""
    for make in (freed, part_of_freed, transposed_and_freed, out_of_vmap, Tensor.to_sparse):
        x = [t.requires_grad_() for t in tensors_for(call)]
        out = call(*x)
        with profile() if observed else torch.enable_grad(), pytest.raises((TypeError, RuntimeError)) as refusal:
            torch.autograd.grad(out, x, make(out.detach()))
        assert UNUSABLE[make] in str(refusal.value)
        assert "\n" not in str(refusal.value)


@each_operator
def test_a_size_of_zero_has_no_memory_and_needs_none(call: Call) -> None:
    first, *others = (t[:0] if t.ndim == 3 else t for t in tensors_for(call, requires_grad=True))
    out = call(first, *others)
    assert out.shape == first.shape
    assert all(g is not None for g in torch.autograd.grad(out.sum(), (first, *others)))
