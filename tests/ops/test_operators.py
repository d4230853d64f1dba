"""The short way past the dispatcher: the same bits, and none of those who want to see the operators is bypassed."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.profiler import profile
from torch.utils._python_dispatch import TorchDispatchMode

from tests.ops.operators import OPERATORS, Call, each_operator, tensors_for


class Seen(TorchDispatchMode):
    """Lists the operators that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.names.append(func._schema.name)
        return func(*args, **(kwargs or {}))


class Labelled(Tensor):
    """A tensor of one's own, which still sees every operator."""

    seen: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        cls.seen.append(str(func))
        return super().__torch_function__(func, types, args, kwargs)


@each_operator
def test_the_same_bits_as_through_the_dispatcher(call: Call) -> None:
    direct, dispatched = tensors_for(call, requires_grad=True), tensors_for(call, requires_grad=True)
    out = call(*direct)
    gradients = torch.autograd.grad(out.square().sum(), direct)
    with Seen() as seen:
        expected = call(*dispatched)
        expected_gradients = torch.autograd.grad(expected.square().sum(), dispatched)
    assert {OPERATORS[call], OPERATORS[call] + "_backward"} <= set(seen.names)
    assert torch.equal(out, expected)
    assert all(map(torch.equal, gradients, expected_gradients))


@each_operator
@pytest.mark.parametrize("requires_grad", [False, True])
def test_autograd_remembers_only_what_needs_a_gradient(call: Call, requires_grad: bool) -> None:
    tensors = tensors_for(call, requires_grad)
    assert call(*tensors).requires_grad == requires_grad
    with torch.no_grad():
        assert not call(*tensors).requires_grad


@each_operator
def test_a_profiler_sees_the_operator(call: Call) -> None:
    with profile() as profiler:
        call(*tensors_for(call))
    assert OPERATORS[call] in {event.key for event in profiler.key_averages()}


@each_operator
def test_a_trace_holds_the_operator(call: Call) -> None:
    graph = make_fx(call)(*tensors_for(call)).graph
    assert any(OPERATORS[call].replace("::", ".") in str(node.target) for node in graph.nodes)


@each_operator
def test_a_tensor_of_another_class_sees_the_operator(call: Call) -> None:
    tensors = tensors_for(call)
    tensors[0] = tensors[0].as_subclass(Labelled)
    Labelled.seen.clear()
    assert isinstance(call(*tensors), Labelled)
    assert any(OPERATORS[call].replace("::", ".") in name for name in Labelled.seen)


@each_operator
def test_second_derivatives_are_refused(call: Call) -> None:
    tensors = tensors_for(call, requires_grad=True)
    (first,) = torch.autograd.grad(call(*tensors).square().sum(), tensors[0], create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivatives"):
        torch.autograd.grad(first.sum(), tensors[0])
