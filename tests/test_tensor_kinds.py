"""Tensors that are more than numbers in memory: right as an argument and as a gradient, or refused in one sentence."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.profiler import profile
from torch.testing._internal.two_tensor import TwoTensor

from tests.native import needs_native
from tests.operators import SHAPES, Call, each_operator, tensors_for
from tests.tolerances import DERIVATIVES, SCAN, assert_close

pytestmark = needs_native


class Subclass(Tensor):
    """With PyTorch's own __torch_function__."""


class Silent(Tensor):
    """With none."""

    __torch_function__ = torch._C._disabled_torch_function_impl


def negated(t: Tensor) -> Tensor:
    """−t, of which only the sign bit is lazy."""
    view = torch.complex(t, t).conj().imag
    assert view.is_neg()
    return view


def without_memory(t: Tensor) -> Tensor:
    return torch._efficientzerotensor(t.shape, dtype=t.dtype)


def written_in_inference_mode(t: Tensor) -> Tensor:
    with torch.inference_mode():
        return t.clone()


def out_of_grad(t: Tensor) -> Tensor:
    taken: list[Tensor] = []
    torch.func.grad(lambda x: (taken.append(x), x.sum())[1])(t)
    return taken[0]


USABLE: dict[str, Callable[[Tensor], Tensor]] = {
    "negated": negated,
    "zeros without memory": without_memory,
    "parameter": torch.nn.Parameter,
    "subclass": lambda t: t.as_subclass(Subclass),
    "silent subclass": lambda t: t.as_subclass(Silent),
    "wrapper of two": lambda t: TwoTensor(t, t),
    "inference": written_in_inference_mode,
    "out of grad": out_of_grad,
    "functional": torch._to_functional_tensor,
    "copied on write": torch._lazy_clone,
    "overlapping": lambda t: t[..., :1].expand_as(t),
}


def plain(t: Tensor) -> Tensor:
    """The numbers of it."""
    if isinstance(t, TwoTensor):
        t = t.a
    if torch._is_functional_tensor(t):
        t = torch._from_functional_tensor(t)
    return t.as_subclass(Tensor).clone().resolve_neg()


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


@pytest.mark.filterwarnings("ignore:Torchinductor does not support code generation for complex operators")
@each_operator
def test_negated_inside_compiled_code(call: Call, own_caches: None) -> None:
    first, *others = tensors_for(call)
    compiled = torch.compile(lambda *x: call(torch.complex(first, first).conj().imag, *x), fullgraph=True)
    assert_close(compiled(*others), call(-first, *others), SCAN)


def freed(t: Tensor) -> Tensor:
    t = t.clone()
    t.untyped_storage().resize_(0)
    return t


def transposed_and_freed(t: Tensor) -> Tensor:
    return freed(t.mT.contiguous().mT if t.ndim > 1 else t)


def out_of_vmap(t: Tensor) -> Tensor:
    taken: list[Tensor] = []
    torch.func.vmap(lambda x: (taken.append(x), x)[1])(torch.stack([t, t]))
    return taken[0]


UNUSABLE: dict[Callable[[Tensor], Tensor], str] = {
    freed: "has no memory, its storage was freed",
    transposed_and_freed: "has no memory, its storage was freed",
    out_of_vmap: "a tensor was taken out of its vmap",
    Tensor.to_sparse: "has the layout torch.sparse_coo; expected a dense tensor",
    Tensor.to_mkldnn: "has the layout torch._mkldnn; expected a dense tensor",
    lambda t: torch.nested.nested_tensor([t, t], layout=torch.jagged): "has the layout torch.jagged; expected a dense",
    lambda t: torch.quantize_per_tensor(t, 0.1, 0, torch.qint8): "is torch.qint8; expected one of float32",
    lambda t: t.to(torch.float8_e5m2): "is torch.float8_e5m2; expected one of float32",
}
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
    for make in (freed, transposed_and_freed, out_of_vmap, Tensor.to_sparse):
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
