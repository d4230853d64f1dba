"""The updates as PyTorch operators: one graph, the same bits, and nobody who looks is bypassed."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.profiler import profile

from tests.native import in_threads_at_once, needs_native
from tests.ops.conv.test_conv import filters
from tests.ops.tensor_kinds import UNUSABLE, freed, negated
from tests.ops.update.tokens import sequence, token
from tustin import causal_conv_update, selective_state_update

Call = Callable[..., Tensor]


def state_update(state: Tensor, *tensors: Tensor) -> Tensor:
    return selective_state_update(state, *tensors, delta_softplus=True, discretization="bil")


def conv_update(state: Tensor, x: Tensor, *tensors: Tensor) -> Tensor:
    return causal_conv_update(x, state, *tensors)


def tensors_for(call: Call) -> list[Tensor]:
    if call is conv_update:
        x = filters(2, 24, 1, 4)
        return [torch.ones(2, 24, 4), x["x"], x["weight"], x["bias"]]
    y = sequence("bil", D=24, L=1)
    tokens = token(y, 0)
    return [y["initial_state"], *[tokens[name] for name in ("u", "delta", "A", "B", "C", "D", "z", "delta_bias")]]


each = pytest.mark.parametrize("call", [state_update, conv_update], ids=lambda call: call.__name__)
NAMES = {state_update: "tustin::selective_state_update", conv_update: "tustin::causal_conv_update"}


@needs_native
@each
def test_opcheck(call: Call, own_caches: None) -> None:
    """PyTorch's own examination: schema, what is overwritten, fake tensors, tracing with dynamic shapes."""
    more = (None, True, "bil") if call is state_update else (True,)  # no mix
    operator = getattr(torch.ops.tustin, NAMES[call].removeprefix("tustin::")).default
    torch.library.opcheck(operator, (*tensors_for(call), *more))


@needs_native
@each
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile_without_a_graph_break(call: Call, backend: str, own_caches: None) -> None:
    """One graph, the same bits, and the state overwritten."""
    compiled = torch.compile(call, fullgraph=True, backend=backend)
    (state, *x), (expected_state, *_) = tensors_for(call), tensors_for(call)
    for _ in range(3):
        with torch.no_grad():
            assert torch.equal(compiled(state, *x), call(expected_state, *x))
        assert torch.equal(state, expected_state)


@needs_native
@each
def test_compile_with_a_gradient(call: Call, own_caches: None) -> None:
    def two(state: Tensor, *x: Tensor) -> Tensor:
        state = state.clone()
        return call(state, *x) + call(state, *x)

    x = [t.requires_grad_() for t in tensors_for(call)]
    got = torch.autograd.grad(torch.compile(two, fullgraph=True, backend="aot_eager")(*x).square().sum(), x)
    expected = torch.autograd.grad(two(*x).square().sum(), x)
    assert all(torch.allclose(one, other, rtol=1e-5, atol=1e-5) for one, other in zip(got, expected, strict=True))


@each
def test_a_profiler_sees_the_operator(call: Call) -> None:
    with profile() as profiler:
        call(*tensors_for(call))
    assert NAMES[call] in {event.key for event in profiler.key_averages()}


@each
def test_vmap(call: Call) -> None:
    state, *x = tensors_for(call)
    states = torch.stack([state, -state])
    mapped = torch.func.vmap(lambda state: call(state, *x))(states)
    for i, one in enumerate([state.clone(), -state]):
        assert torch.allclose(mapped[i], call(one, *x), rtol=1e-5, atol=1e-6)
        assert torch.allclose(states[i], one, rtol=1e-5, atol=1e-6)


@each
def test_a_lazily_negated_state(call: Call) -> None:
    state, *x = tensors_for(call)
    lazy = negated(-state)
    assert torch.allclose(call(lazy, *x), call(state, *x), rtol=1e-5, atol=1e-6)
    assert torch.allclose(lazy, state, rtol=1e-5, atol=1e-6)


@each
def test_memory_that_is_gone(call: Call) -> None:
    state, *x = tensors_for(call)
    with pytest.raises(RuntimeError, match=UNUSABLE[freed]):
        call(freed(state), *x)


@needs_native
@each
def test_threads(call: Call) -> None:
    """Each has its own state; what one does shows nowhere else."""
    samples = [tensors_for(call) for _ in range(4)]
    expected = call(*tensors_for(call))
    assert all(torch.equal(got, expected) for got in in_threads_at_once(call, samples))
