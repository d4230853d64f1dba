"""The convolution as a PyTorch operator, the choice of backend, and its errors."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.native import in_threads_at_once, needs_native, run_python
from tests.ops.conv.test_conv import filters
from tustin.ops.conv import causal_conv


def arguments(batch: int = 2, D: int = 24, L: int = 50, K: int = 4) -> list[Tensor]:
    """Channel last, as the mixer has it."""
    x = filters(batch, D, L, K)
    return [t.requires_grad_() for t in (x["x"].mT.contiguous().mT, x["weight"], x["bias"])]


def conv(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return causal_conv(x, weight, bias, reverse=True)


@needs_native
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # opcheck looks at it
@pytest.mark.parametrize("K", [4, 3])
@pytest.mark.parametrize("bias", [True, False])
def test_opcheck(bias: bool, K: int, own_caches: None) -> None:
    """PyTorch's own examination: schema, fake tensors, autograd registration, tracing with dynamic shapes."""
    x, weight, b = arguments(2, 4, 5, K)
    torch.library.opcheck(torch.ops.tustin.causal_conv.default, (x, weight, b if bias else None, True, False))


@needs_native
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile_without_a_graph_break(backend: str, own_caches: None) -> None:
    """One graph, the same bits, and the gradient through it."""
    x = arguments()
    compiled = torch.compile(conv, fullgraph=True, backend=backend)
    assert torch.equal(compiled(*x), conv(*x))
    gradients = torch.autograd.grad(compiled(*x).sum(), x)
    for got, expected in zip(gradients, torch.autograd.grad(conv(*x).sum(), x), strict=True):
        assert torch.equal(got, expected)


@needs_native
def test_compile_with_dynamic_shapes(own_caches: None) -> None:
    compiled = torch.compile(conv, fullgraph=True, backend="aot_eager", dynamic=True)
    for L in (7, 40, 65):
        x = arguments(L=L)
        assert torch.equal(compiled(*x), conv(*x))


def test_compile_the_reference(own_caches: None) -> None:
    def reference(*x: Tensor) -> Tensor:
        return causal_conv(*x, backend="reference")

    x = arguments()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        compiled = torch.compile(reference, fullgraph=True, backend="aot_eager")(*x)
    assert torch.equal(compiled, reference(*x))


@needs_native
def test_export(own_caches: None) -> None:
    class Layer(torch.nn.Module):
        def forward(self, *x: Tensor) -> Tensor:
            return conv(*x)

    x = tuple(arguments())
    assert torch.equal(torch.export.export(Layer(), x).module()(*x), conv(*x))


@pytest.mark.parametrize("backend", [pytest.param("native", marks=needs_native), "reference"])
def test_autocast_leaves_it_in_float32_inside(backend: str) -> None:
    """The linear layer before it gives bfloat16; the sum and its SiLU are rounded once."""
    x, weight, bias = arguments()
    layer = torch.nn.Linear(50, 50)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        narrow = layer(x)
        out = causal_conv(narrow, weight, bias, backend=backend)
    assert out.dtype == narrow.dtype == torch.bfloat16
    assert torch.equal(out, causal_conv(narrow.float(), weight, bias, backend=backend).bfloat16())
    out.float().sum().backward()
    assert weight.grad is not None
    assert weight.grad.dtype == torch.float32
    assert layer.weight.grad is not None
    assert layer.weight.grad.isfinite().all()


@needs_native
def test_gradients_of_any_strides() -> None:
    """An expanded one, as a sum gives it, and a transposed one, equal the same numbers stored plainly."""
    x = arguments()
    out = causal_conv(*x, backend="native")
    shape, random = out.shape, torch.randn(out.shape, generator=torch.Generator().manual_seed(0))
    for d_out in (torch.ones(()).expand(shape), random[:1, :, :1].expand(shape), random.mT.contiguous().mT, random):
        given = torch.autograd.grad(out, x, d_out, retain_graph=True)
        plain = torch.autograd.grad(out, x, d_out.contiguous(), retain_graph=True)
        assert all(torch.equal(a, b) for a, b in zip(given, plain, strict=True))


@needs_native
def test_gradients_only_where_asked() -> None:
    x, weight, bias = arguments()
    causal_conv(x.detach(), weight, bias.detach(), backend="native").sum().backward()
    assert weight.grad is not None
    assert x.grad is None
    assert bias.grad is None
    assert not causal_conv(x.detach(), weight.detach(), backend="native").requires_grad
    with torch.inference_mode():
        assert torch.equal(causal_conv(x, weight, bias), causal_conv(x, weight, bias, backend="native"))


@needs_native
def test_second_derivatives_are_refused_in_one_sentence() -> None:
    x = arguments(1, 2, 3)
    (first,) = torch.autograd.grad(causal_conv(*x, backend="native").sum(), x[0], create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivatives; use backend='reference'"):
        first.sum().backward()


@needs_native
def test_checkpoint_gives_the_same_gradients() -> None:
    x = arguments()
    plain = torch.autograd.grad(conv(*x).square().sum(), x)
    again = torch.autograd.grad(torch.utils.checkpoint.checkpoint(conv, *x, use_reentrant=False).square().sum(), x)
    assert all(torch.equal(a, b) for a, b in zip(again, plain, strict=True))


@needs_native
def test_threads_at_once_do_not_disturb_each_other() -> None:
    samples = [arguments(3, 72, 300 + i) for i in range(4)]
    alone = [conv(*x) for x in samples]
    assert all(map(torch.equal, in_threads_at_once(conv, samples), alone))


@needs_native
def test_fork_after_threads_have_run() -> None:
    """The parent's pool of threads does not exist in the child; the child must not wait for it."""
    done = run_python(
        "import os, torch\n"
        "from tustin.ops.conv import causal_conv\n"
        "torch.set_num_threads(2)\n"
        "x, w = torch.ones(4, 96, 200), torch.ones(96, 4)\n"
        "before = causal_conv(x, w, backend='native').numpy()\n"
        "if child := os.fork():\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "else:\n"
        "    os._exit(int((causal_conv(x, w, backend='native').numpy() != before).any()))\n",
    )
    assert done.stdout.strip() == "0", done.stderr


def test_without_the_library_it_is_slow_and_says_so_once() -> None:
    done = run_python(
        "import torch\n"
        "from tustin.ops.conv import causal_conv\n"
        "x, w = torch.ones(1, 2, 3), torch.ones(2, 4)\n"
        "for _ in range(2): print(causal_conv(x, w).shape)\n"
        "causal_conv(x, w, backend='native')",
        TUSTIN_NATIVE_LIBRARY="/nowhere/_native.so",
    )
    assert done.stdout.count("torch.Size([1, 2, 3])") == 2
    assert (
        done.stderr.count("causal_conv runs on the slow reference backend, because the native backend cannot run it")
        == 1
    )
    assert "RuntimeError: backend 'native' cannot be used: /nowhere/_native.so" in done.stderr


def test_elsewhere_than_on_the_cpu() -> None:
    """`auto` takes the reference without a word; native by name says why it cannot."""
    x, weight, bias = (t.detach().to("meta") for t in arguments())
    assert causal_conv(x, weight, bias).shape == x.shape
    with pytest.raises(RuntimeError, match="backend 'native' cannot be used: "):
        causal_conv(x, weight, bias, backend="native")


GOOD: dict[str, Any] = {"x": torch.ones(2, 3, 5), "weight": torch.ones(3, 4), "bias": torch.ones(3)}


@pytest.mark.parametrize(
    ("bad", "error", "sentence"),
    [
        ({"x": None}, TypeError, "x must be a tensor, got NoneType"),
        ({"weight": [1.0]}, TypeError, "weight must be a tensor, got list"),
        ({"x": torch.ones(2, 3, 5).int()}, TypeError, "x is torch.int32; expected one of float32, float64, bfloat16"),
        ({"bias": torch.ones(3) + 0j}, TypeError, "bias is torch.complex64; .* not supported, expected one of float32"),
        ({"x": torch.ones(3, 5)}, ValueError, r"x has shape \(3, 5\), expected \(batch, D, L\) with L of at least 1"),
        ({"x": torch.ones(2, 3, 0)}, ValueError, r"x has shape \(2, 3, 0\), expected \(batch, D, L\)"),
        (
            {"weight": torch.ones(4, 4)},
            ValueError,
            r"weight has shape \(4, 4\), expected \(D, K\) with D = 3, as x has",
        ),
        ({"weight": torch.ones(3, 1, 4)}, ValueError, r"weight has shape \(3, 1, 4\), expected \(D, K\)"),
        ({"weight": torch.ones(3, 0)}, ValueError, r"weight has shape \(3, 0\), .* K of at least 1"),
        ({"bias": torch.ones(4)}, ValueError, r"bias has shape \(4,\), expected \(3,\)"),
        ({"bias": torch.ones(3, device="meta")}, ValueError, "bias is on meta, but x is on cpu"),
        (
            {"x": torch.ones(2, 3, 5).to_sparse()},
            TypeError,
            "x has the layout torch.sparse_coo; expected a dense tensor",
        ),
        ({"silu": None}, TypeError, "silu must be True or False, got None"),
        ({"reverse": 1}, TypeError, "reverse must be True or False, got 1"),
        ({"backend": ["native"]}, ValueError, r"unknown backend \['native'\]"),
        ({"backend": "nativ"}, ValueError, "unknown backend 'nativ' .did you mean 'native'.*; known: auto, native"),
    ],
    ids=str,
)
def test_mistakes_are_one_sentence(bad: dict[str, Any], error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        causal_conv(**GOOD | bad)
