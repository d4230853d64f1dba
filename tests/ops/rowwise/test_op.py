"""The gate and the norm as PyTorch operators, the choice of backend, and their errors."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.native import in_threads_at_once, needs_native, run_python
from tests.ops.rowwise import test_rowwise
from tests.ops.rowwise.test_rowwise import OPERATORS, each_operator
from tustin.ops.rowwise import beside, gated_mean, rms_norm


def arguments(name: str, *shape: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    x = test_rowwise.arguments(name, *(shape or (2, 50, 24)), dtype=dtype)
    return [t.requires_grad_() for t in x.values()]


@needs_native
@each_operator
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # opcheck looks at it
@pytest.mark.parametrize("transposed", [False, True])
def test_opcheck(transposed: bool, name: str, own_caches: None) -> None:
    """PyTorch's own examination: schema, fake tensors, autograd registration, tracing with dynamic shapes."""
    first, *others = arguments(name, 2, 5, 4)
    first = first.detach().mT.contiguous().mT.requires_grad_() if transposed else first
    eps = [1e-5] if name == "rms_norm" else []
    torch.library.opcheck(getattr(torch.ops.tustin, name).default, (first, *others, *eps))


@needs_native
@each_operator
@pytest.mark.parametrize("transposed", [False, True])
def test_gradcheck(transposed: bool, name: str) -> None:
    """The gradients are those of the outputs, by finite differences in float64."""
    first, *others = arguments(name, 2, 5, 3, dtype=torch.float64)
    first = first.detach().mT.contiguous().mT.requires_grad_() if transposed else first
    assert torch.autograd.gradcheck(lambda *x: OPERATORS[name](*x, backend="native"), (first, *others))


@needs_native
@each_operator
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile_without_a_graph_break(backend: str, name: str, own_caches: None) -> None:
    """One graph, the same bits, and the gradient through it."""
    x, function = arguments(name), OPERATORS[name]
    compiled = torch.compile(function, fullgraph=True, backend=backend)
    assert torch.equal(compiled(*x), function(*x))
    gradients = torch.autograd.grad(compiled(*x).sum(), x)
    for got, expected in zip(gradients, torch.autograd.grad(function(*x).sum(), x), strict=True):
        assert torch.equal(got, expected)


@needs_native
@each_operator
def test_compile_with_dynamic_shapes(name: str, own_caches: None) -> None:
    compiled = torch.compile(OPERATORS[name], fullgraph=True, backend="aot_eager", dynamic=True)
    for L in (7, 40, 65):
        x = arguments(name, 2, L, 24)
        assert torch.equal(compiled(*x), OPERATORS[name](*x))


@each_operator
def test_compile_the_reference(name: str, own_caches: None) -> None:
    def reference(*x: Tensor) -> Tensor:
        return OPERATORS[name](*x, backend="reference")

    x = arguments(name)
    compiled = torch.compile(reference, fullgraph=True, backend="aot_eager")(*x)
    assert torch.equal(compiled, reference(*x))


@needs_native
@each_operator
def test_export(name: str, own_caches: None) -> None:
    class Layer(torch.nn.Module):
        def forward(self, *x: Tensor) -> Tensor:
            return OPERATORS[name](*x)

    x = tuple(arguments(name))
    assert torch.equal(torch.export.export(Layer(), x).module()(*x), OPERATORS[name](*x))


@pytest.mark.parametrize("backend", [pytest.param("native", marks=needs_native), "reference"])
def test_autocast_changes_no_dtype(backend: str) -> None:
    """The norm of the residual stream stays in float32; the gate of bfloat16 is bfloat16."""
    x, weight = arguments("rms_norm")
    a, b, gate = (t.detach().bfloat16().requires_grad_() for t in arguments("gated_mean"))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        normed, gated = rms_norm(x, weight, 1e-5, backend=backend), gated_mean(a, b, gate, backend=backend)
    assert torch.equal(normed, rms_norm(x, weight, 1e-5, backend=backend))
    assert torch.equal(gated, gated_mean(a, b, gate, backend=backend))
    assert (normed.dtype, gated.dtype) == (torch.float32, torch.bfloat16)
    (normed.sum() + gated.float().sum()).backward()
    for leaf in (x, weight, a, b, gate):
        assert leaf.grad is not None
        assert leaf.grad.dtype == leaf.dtype


@needs_native
@each_operator
def test_gradients_of_any_strides(name: str) -> None:
    """An expanded one, as a sum gives it, and a transposed one, equal the same numbers stored plainly."""
    x = arguments(name)
    out = OPERATORS[name](*x, backend="native")
    shape, random = out.shape, torch.randn(out.shape, generator=torch.Generator().manual_seed(0))
    for d_out in (torch.ones(()).expand(shape), random[:1, :, :1].expand(shape), random.mT.contiguous().mT, random):
        given = torch.autograd.grad(out, x, d_out, retain_graph=True)
        plain = torch.autograd.grad(out, x, d_out.contiguous(), retain_graph=True)
        assert all(torch.equal(a, b) for a, b in zip(given, plain, strict=True))


@needs_native
@each_operator
def test_gradients_only_where_asked(name: str) -> None:
    x = arguments(name)
    *fixed, last = x
    OPERATORS[name](*(t.detach() for t in fixed), last, backend="native").sum().backward()
    assert last.grad is not None
    assert all(t.grad is None for t in fixed)
    assert not OPERATORS[name](*(t.detach() for t in x), backend="native").requires_grad
    with torch.inference_mode():
        assert torch.equal(OPERATORS[name](*x), OPERATORS[name](*x, backend="native"))


@needs_native
def test_the_gradients_of_both_summands_are_not_one_tensor() -> None:
    """Equal they are, but changing one must not change the other."""
    a, b, gate = arguments("gated_mean")
    gated_mean(a, b, gate, backend="native").sum().backward()
    assert a.grad is not None
    assert b.grad is not None
    assert torch.equal(a.grad, b.grad)
    before = b.grad.clone()
    a.grad.zero_()
    assert torch.equal(b.grad, before)


@needs_native
@each_operator
def test_second_derivatives_are_refused_in_one_sentence(name: str) -> None:
    x = arguments(name, 2, 3)
    (first,) = torch.autograd.grad(OPERATORS[name](*x, backend="native").sum(), x[-1], create_graph=True)
    with pytest.raises(NotImplementedError, match=f"{name}: this backend has no second derivatives; use backend='ref"):
        first.sum().backward()


@each_operator
def test_reference_has_second_derivatives(name: str) -> None:
    x = arguments(name, 2, 3, dtype=torch.float64)
    assert torch.autograd.gradgradcheck(lambda *x: OPERATORS[name](*x, backend="reference"), x)


@needs_native
@each_operator
def test_threads_at_once_do_not_disturb_each_other(name: str) -> None:
    samples = [arguments(name, 3, 300 + i, 72) for i in range(4)]
    alone = [OPERATORS[name](*x) for x in samples]
    assert all(map(torch.equal, in_threads_at_once(OPERATORS[name], samples), alone))


@needs_native
def test_fork_after_threads_have_run() -> None:
    """The parent's pool of threads does not exist in the child; the child must not wait for it."""
    done = run_python(
        "import os, torch\n"
        "from tustin.ops.rowwise import gated_mean, rms_norm\n"
        "torch.set_num_threads(2)\n"
        "x, w = torch.ones(4, 200, 96), torch.ones(96)\n"
        "def both(): return gated_mean(x, x, rms_norm(x, w, 1e-5, backend='native'), backend='native').numpy()\n"
        "before = both()\n"
        "if child := os.fork():\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "else:\n"
        "    os._exit(int((both() != before).any()))\n",
    )
    assert done.stdout.strip() == "0", done.stderr


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"TUSTIN_NATIVE_LIBRARY": "/nowhere/_native.so"}, "/nowhere/_native.so"),
        ({"TRITON_INTERPRET": "1"}, "TRITON_INTERPRET=1 gives the CPU to Triton's interpreter"),
    ],
    ids=str,
)
def test_where_native_cannot_run(environment: dict[str, str], reason: str) -> None:
    """`auto` is the reference, without a word; by name it says why it cannot."""
    done = run_python(
        "import torch\n"
        "from tustin.ops.rowwise import gated_mean, rms_norm\n"
        "x, w = torch.ones(2, 3), torch.ones(3)\n"
        "print(gated_mean(x, x, x).shape, rms_norm(x, w, 1e-5).shape)\n"
        "gated_mean(x, x, x, backend='native')",
        **environment,
    )
    assert done.stdout.count("torch.Size([2, 3])") == 2, done.stderr
    assert "Warning" not in done.stderr
    assert f"RuntimeError: backend 'native' cannot be used: {reason}" in done.stderr


@each_operator
def test_elsewhere_than_on_the_cpu(name: str) -> None:
    x = [t.detach().to("meta") for t in arguments(name)]
    assert OPERATORS[name](*x).shape == x[0].shape
    with pytest.raises(RuntimeError, match="backend 'native' cannot be used: "):
        OPERATORS[name](*x, backend="native")


def test_beside_the_scan() -> None:
    assert [beside(name) for name in ("auto", "native", "triton", "reference")] == ["auto"] * 3 + ["reference"]


GATE: dict[str, Any] = {"a": torch.ones(2, 3), "b": torch.ones(2, 3), "gate": torch.ones(2, 3)}
NORM: dict[str, Any] = {"x": torch.ones(2, 3), "weight": torch.ones(3)}


@pytest.mark.parametrize(
    ("name", "bad", "error", "sentence"),
    [
        ("gated_mean", {"a": None}, TypeError, "gated_mean: a must be a tensor, got NoneType"),
        ("gated_mean", {"gate": [1.0]}, TypeError, "gate must be a tensor, got list"),
        ("gated_mean", {"a": torch.ones(2, 3).int()}, TypeError, "a is torch.int32; expected one of float32, float64"),
        ("gated_mean", {"b": torch.ones(3)}, ValueError, r"b has shape \(3,\), but a has \(2, 3\)"),
        ("gated_mean", {"gate": torch.ones(2, 1)}, ValueError, r"gate has shape \(2, 1\), but a has \(2, 3\)"),
        ("gated_mean", {"gate": torch.ones(2, 3).half()}, TypeError, "gate is torch.float16, but a is torch.float32"),
        ("gated_mean", {"b": torch.ones(2, 3, device="meta")}, ValueError, "b is on meta, but a is on cpu"),
        (
            "gated_mean",
            {"backend": "nativ"},
            ValueError,
            "unknown backend 'nativ' .did you mean 'native'.*; known: auto",
        ),
        ("rms_norm", {"x": 1.0}, TypeError, "rms_norm: x must be a tensor, got float"),
        (
            "rms_norm",
            {"weight": torch.ones(3) + 0j},
            TypeError,
            "weight is torch.complex64; .* expected one of float32",
        ),
        (
            "rms_norm",
            {"weight": torch.ones(4)},
            ValueError,
            r"x has shape \(2, 3\) and weight \(4,\), expected \(…, D\)",
        ),
        ("rms_norm", {"weight": torch.ones(2, 3)}, ValueError, r"weight \(2, 3\), expected \(…, D\) and \(D,\)"),
        ("rms_norm", {"x": torch.ones(())}, ValueError, r"x has shape \(\) and weight \(3,\), expected"),
        ("rms_norm", {"weight": torch.ones(3, device="meta")}, ValueError, "weight is on meta, but x is on cpu"),
        (
            "rms_norm",
            {"x": torch.ones(2, 3).to_sparse()},
            TypeError,
            "x has the layout torch.sparse_coo; expected a dense",
        ),
        ("rms_norm", {"eps": None}, TypeError, "eps must be a number, got None"),
        ("rms_norm", {"eps": "1e-5"}, TypeError, "eps must be a number, got '1e-5'"),
        ("rms_norm", {"eps": -1e-5}, ValueError, "eps must be finite and at least 0, got -1e-05"),
        ("rms_norm", {"eps": float("nan")}, ValueError, "eps must be finite and at least 0, got nan"),
        ("rms_norm", {"eps": 10**400}, ValueError, "eps must be finite and at least 0, got 1000"),
        ("rms_norm", {"backend": ["native"]}, ValueError, r"unknown backend \['native'\]"),
        ("rms_norm", {"backend": "triton"}, ValueError, "unknown backend 'triton'.*; known: auto, native, reference"),
    ],
    ids=str,
)
def test_mistakes_are_one_sentence(name: str, bad: dict[str, Any], error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        OPERATORS[name](**(GATE if name == "gated_mean" else NORM) | bad)
