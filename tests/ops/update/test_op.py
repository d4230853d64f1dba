"""The updates as PyTorch operators: one graph, the same bits, and nobody who looks is bypassed."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.profiler import profile

from tests.native import in_threads_at_once, needs_native
from tests.ops.conv.test_conv import filters
from tests.ops.tensor_kinds import UNUSABLE, USABLE, freed, negated, plain
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
@pytest.mark.filterwarnings("ignore:.*to_mkldnn", "ignore:.*quantiz", "ignore:.*nested")  # they tell of their future
@each
@pytest.mark.parametrize("kind", USABLE)
def test_every_kind_of_tensor(call: Call, kind: str) -> None:
    """Each argument but the state: the same as of plain numbers, or one sentence."""
    for i in range(1, len(tensors_for(call))):
        x = tensors_for(call)
        x[i] = USABLE[kind](-x[i] if kind == "negated" else x[i])
        exact = [plain(t).detach() for t in x]
        with torch.no_grad():
            if "functional" in kind:
                with pytest.raises(TypeError, match="state is overwritten, so it must be a functional tensor"):
                    call(*x)
                continue
            assert torch.allclose(plain(call(*x)), call(*exact), rtol=1e-5, atol=1e-5), f"argument {i}"
        assert torch.allclose(x[0], exact[0], rtol=1e-5, atol=1e-5), f"state, argument {i}"


@needs_native
@pytest.mark.filterwarnings("ignore:.*to_mkldnn", "ignore:.*quantiz", "ignore:.*nested")
@each
@pytest.mark.parametrize(("make", "sentence"), UNUSABLE.items(), ids=UNUSABLE.values())
def test_tensors_that_are_refused(call: Call, make: Callable[[Tensor], Tensor], sentence: str) -> None:
    for i in range(len(tensors_for(call))):
        x = tensors_for(call)
        x[i] = make(x[i])
        with pytest.raises((TypeError, RuntimeError), match=sentence) as refusal:
            call(*x)
        assert "\n" not in str(refusal.value)


@needs_native
@each
def test_a_state_without_memory(call: Call) -> None:
    state, *x = tensors_for(call)
    with torch.no_grad(), pytest.raises(ValueError, match="state has no memory of its own, but it is overwritten"):
        call(USABLE["zeros without memory"](state), *x)


@needs_native
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # PyTorch itself uses it
@each
def test_forward_mode(call: Call) -> None:
    """The tangent of a token is that of the definition, and not zero."""
    state, x, *others = tensors_for(call)
    value, tangent = torch.func.jvp(lambda x: call(state.clone(), x, *others), (x,), (x,))
    linear = (call(state.clone(), x + 1e-3 * x, *others) - call(state.clone(), x - 1e-3 * x, *others)) / 2e-3
    assert torch.allclose(value, call(state.clone(), x, *others), rtol=1e-5, atol=1e-5)
    assert torch.allclose(tangent, linear, rtol=1e-2, atol=1e-2)
    assert tangent.abs().max() > 0.1


@needs_native
@each
def test_threads(call: Call) -> None:
    """Each has its own state; what one does shows nowhere else."""
    samples = [tensors_for(call) for _ in range(4)]
    expected = call(*tensors_for(call))
    assert all(torch.equal(got, expected) for got in in_threads_at_once(call, samples))
