"""Linear layers by oneDNN: the same numbers and gradients, and only where PyTorch's own operators are not wanted."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from tests.tolerances import assert_close
from tustin.models import Mixer
from tustin.ops import products

needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="PyTorch was built without oneDNN")
SHAPES = [(2, 3, 4), (512, 768, 100), (5, 1, 1), (1, 1, 7), (65, 4, 128), (65, 128, 20), (1, 16, 16)]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """As on a CPU where oneDNN is faster, for products of every size. Each layer that it computes says its shape."""
    told: list[str] = []
    forward = products._Linear.forward

    def telling(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        told.append(f"{tuple(x.shape)} {tuple(weight.shape)}")
        return forward(ctx, x, weight, bias)

    monkeypatch.setattr(products, "onednn_is_faster", lambda: True)
    monkeypatch.setattr(products, "_WORTH_IT", 1)
    monkeypatch.setattr(products._Linear, "forward", staticmethod(telling))
    return told


def first_and_second(layer: Callable[..., Tensor], *given: Tensor) -> list[Tensor]:
    """The output, its gradients, and those of the squares of the gradients."""
    leaves = [tensor.detach().requires_grad_() for tensor in given]
    out = layer(*leaves)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    first = torch.autograd.grad(out, leaves, weights.to(out.dtype), create_graph=True)
    second = torch.autograd.grad(sum((g**2).sum() for g in first), leaves[:2])
    return [out, *first, *second]


@needs_onednn
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("rows", "inputs", "outputs"), SHAPES)
def test_numbers_and_gradients(rows: int, inputs: int, outputs: int, bias: bool, taken: list[str]) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(2, rows, inputs + 3), torch.randn(outputs, inputs)
    more = (torch.randn(outputs),) if bias else ()
    for given in (x[..., :inputs], x[..., 3:].transpose(0, 1), x.flip(0)[..., 1 : inputs + 1], x[0, 0, :inputs]):
        got = first_and_second(products.linear, given, weight, *more)
        exact = first_and_second(F.linear, *(t.double() for t in (given, weight, *more)))
        for one, other in zip(got, exact, strict=True):
            assert_close(one, other.float(), {torch.float32: 1e-5})
    assert len(taken) > 12


@needs_onednn
def test_gradients_only_of_what_needs_them(taken: list[str]) -> None:
    x, weight = torch.randn(9, 5), torch.randn(3, 5, requires_grad=True)
    products.linear(x, weight).sum().backward()
    assert len(taken) == 2  # forward, and the gradient of the weight
    with torch.no_grad():
        assert not products.linear(x, weight).requires_grad


@needs_onednn
def test_only_what_a_gradient_needs_is_kept(taken: list[str]) -> None:
    """So what it does not need may be overwritten."""
    x, weight = torch.randn(9, 5, requires_grad=True), torch.randn(3, 5)
    h = x * 1
    out = products.linear(h, weight)
    h.add_(1)
    out.sum().backward()
    assert_close(x.grad, weight.sum(0).expand(9, 5), {torch.float32: 1e-5})
    h, trained = torch.randn(9, 5), torch.randn(3, 5, requires_grad=True)
    out = products.linear(h, trained)
    with torch.no_grad():
        trained.add_(1)
    out.sum().backward()
    assert_close(trained.grad, h.sum(0).expand(3, 5), {torch.float32: 1e-5})
    assert len(taken) == 4


@needs_onednn
def test_what_onednn_misreads_or_refuses_is_left_to_pytorch(taken: list[str]) -> None:
    x, weight = torch.randn(9, 5), torch.randn(4, 5)
    biases = torch.randn(8)[::2], torch.randn(1).expand(4), torch.randn(4, 3)[:, 1], torch.randn(1), torch.randn(9, 4)
    for bias in biases:
        assert torch.equal(products.linear(x, weight, bias), F.linear(x, weight, bias))
    for odd in (torch.randn(9).as_strided((4, 5), (1, 1)), torch.randn(4, 1).expand(4, 5), torch.randn(4, 10)[:, ::2]):
        assert torch.equal(products.linear(x, odd), F.linear(x, odd))
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        products.linear(x, weight.t())
    assert taken == []
    products.linear(input=x, weight=weight, bias=torch.randn(4))
    assert len(taken) == 1


@needs_onednn
def test_a_mixer_repeats_bit_for_bit(taken: list[str]) -> None:
    torch.manual_seed(0)
    mixer, x = Mixer(32, d_state=4), torch.randn(4, 17, 32)

    def gradients() -> list[Tensor]:
        mixer.zero_grad()
        mixer(x).square().sum().backward()
        return [p.grad for p in mixer.parameters() if p.grad is not None]

    first = gradients()
    assert len(taken) == 7 * 3 - 2  # seven products with two gradients each, and the input's two are not needed
    assert all(torch.equal(one, other) for one, other in zip(first, gradients(), strict=True))


@needs_onednn
@pytest.mark.filterwarnings("ignore:.torch.jit:FutureWarning", "ignore:.torch.jit:DeprecationWarning")
def test_where_it_is_left_alone(taken: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    x, layer = torch.randn(4, 5), nn.Linear(5, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert products.linear(x, layer.weight).dtype is torch.bfloat16
    with FlopCounterMode(display=False) as counter:
        products.linear(x, layer.weight)
    with torch.overrides.BaseTorchFunctionMode():
        products.linear(x, layer.weight)
    assert counter.get_total_flops() == 2 * 4 * 5 * 3
    torch.func.vmap(products.linear, (0, None))(x, layer.weight)
    torch.func.jvp(lambda x: products.linear(x, layer.weight), (x,), (x,))
    torch.compile(products.linear, backend="eager", fullgraph=True)(x, layer.weight)
    torch.jit.trace(lambda *given: products.linear(*given), (x, layer.weight.detach()), check_trace=False)
    products.linear(x.double(), layer.weight.double())
    products.linear(x[:0], layer.weight)
    products.linear(x, layer.weight[0])
    monkeypatch.setattr(torch._C, "_get_mkldnn_enabled", lambda: False)
    products.linear(x, layer.weight)
    assert taken == []


def test_small_products_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bool] = []
    monkeypatch.setattr(products, "onednn_is_faster", lambda: True)
    monkeypatch.setattr(products, "are_plain", lambda *_: told.append(True))
    products.linear(torch.randn(64, 64), torch.randn(64, 64))
    assert told == []
    products.linear(torch.randn(512, 64), torch.randn(64, 64))
    assert told == [True]


@needs_onednn
def test_hooks_are_called(taken: list[str]) -> None:
    x, layer, seen = torch.randn(4, 5, requires_grad=True), nn.Linear(5, 3), []
    products.apply_linear(layer, x)
    assert len(taken) == 1
    handles = [
        layer.register_forward_hook(lambda *_: seen.append("after")),
        layer.register_forward_pre_hook(lambda *_: seen.append("before")),
        layer.register_full_backward_hook(lambda *_: seen.append("backward")),
    ]
    products.apply_linear(layer, x).sum().backward()
    assert seen == ["before", "after", "backward"]
    for handle in handles:
        handle.remove()
    products.apply_linear(layer, x)
    assert len(taken) == 2
    with nn.modules.module.register_module_forward_hook(lambda *_: seen.append("everywhere")):
        products.apply_linear(layer, x)
    layer.forward = lambda x: x  # as accelerate does
    assert products.apply_linear(layer, x) is x
    assert products.apply_linear(nn.Identity(), x) is x
    assert len(taken) == 2
    assert seen[3:] == ["everywhere"]


@pytest.mark.parametrize("missing", ["nothing", "AuthenticAMD", "AVX512", "mkldnn", "mkl"])
def test_it_is_for_amd_with_avx_512(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "vendor_id : AuthenticAMD"
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: missing != "mkl")
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: missing != "mkldnn")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2" if missing == "AVX512" else "AVX512")
    monkeypatch.setattr(products.Path, "exists", lambda path: True)
    monkeypatch.setattr(products.Path, "read_text", lambda path: text.replace(missing, "GenuineIntel"))
    known = hasattr(torch.ops.mkldnn, "_linear_pointwise")
    assert products.onednn_is_faster.__wrapped__() == (missing == "nothing" and known)
