"""The short way past the dispatcher: the same bits, and none of those who want to see the operators is bypassed."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.profiler import profile
from torch.utils._python_dispatch import TorchDispatchMode

from tustin import selective_scan
from tustin.conv import causal_conv
from tustin.rowwise import gated_mean, rms_norm


def scan(*tensors: Tensor) -> Tensor:
    out = selective_scan(*tensors, delta_softplus=True, method="bil")
    assert isinstance(out, Tensor)
    return out


def conv(x: Tensor, weight: Tensor) -> Tensor:
    return causal_conv(x, weight)


def gate(a: Tensor, b: Tensor, gate: Tensor) -> Tensor:
    return gated_mean(a, b, gate)


def norm(x: Tensor, weight: Tensor) -> Tensor:
    return rms_norm(x, weight, 1e-5)


SHAPES = {
    scan: [(2, 5, 7), (2, 5, 7), (5, 3), (2, 3, 7), (2, 3, 7)],
    conv: [(2, 5, 7), (5, 4)],
    gate: [(2, 7, 5)] * 3,
    norm: [(2, 7, 5), (5,)],
}
OPERATORS = {
    scan: "tustin::selective_scan",
    conv: "tustin::causal_conv",
    gate: "tustin::gated_mean",
    norm: "tustin::rms_norm",
}
each_operator = pytest.mark.parametrize("call", OPERATORS, ids=lambda call: call.__name__)
Call = Callable[..., Tensor]


def tensors_for(call: Call, requires_grad: bool = False) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(shape, generator=generator) for shape in SHAPES[call]]
    if call is scan:
        tensors[2] = -tensors[2].abs()
    return [t.requires_grad_(requires_grad) for t in tensors]


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
