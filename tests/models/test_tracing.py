"""The model seen by compilers, exporters and other number formats."""

import pytest
import torch
import torch.nn.functional as F

from tests.models.test_vim import build, images
from tustin.ops.scan import BACKENDS

_MISSING = BACKENDS["native"].missing()
pytestmark = [pytest.mark.skipif(bool(_MISSING), reason=str(_MISSING)), pytest.mark.usefixtures("own_caches")]


def test_compile_without_a_graph_break() -> None:
    """One graph, and the gradient through it."""
    model = build(depth=1)
    x = images(model)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-6)
    parameters = list(model.parameters())
    expected = torch.autograd.grad(model(x).square().sum(), parameters)
    for got, gradient in zip(torch.autograd.grad(compiled(x).square().sum(), parameters), expected, strict=True):
        torch.testing.assert_close(got, gradient, rtol=1e-4, atol=1e-4 * float(gradient.abs().max()))


@torch.no_grad()
def test_compile_to_machine_code() -> None:
    model = build(depth=1)
    x = images(model)
    torch.testing.assert_close(torch.compile(model, fullgraph=True)(x), model(x), rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_compile_takes_another_size() -> None:
    model = build(depth=1)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=False)
    for size in ((12, 12), (16, 8)):
        x = images(model, size=size)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-6)


def test_export_with_any_batch() -> None:
    model = build(depth=1)
    x = images(model)
    batch = torch.export.Dim("batch", min=1, max=512)
    with torch.no_grad():
        exported = torch.export.export(model, (x,), dynamic_shapes=({0: batch},)).module()
        for n in (2, 5):
            x = images(model, batch=n)
            torch.testing.assert_close(exported(x), model(x), rtol=1e-5, atol=1e-6)


def test_bfloat16() -> None:
    """Weights and activations of 8 bits of mantissa, but a residual stream of 24: close to float32, and it trains."""
    model = build(depth=4)
    x = images(model)
    expected = model(x)
    model.bfloat16()
    streams = []
    model.layers[3].register_forward_hook(lambda _, inputs, output: streams.extend([inputs[0].dtype, output.dtype]))
    got = model(x.bfloat16())
    assert got.dtype == torch.bfloat16
    assert streams == [torch.float32, torch.float32]
    assert (got.float() - expected).abs().max() < 0.03 * expected.abs().max()
    F.cross_entropy(got.float(), torch.tensor([1, 2])).backward()
    assert [n for n, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()] == []


def test_autocast() -> None:
    model = build(depth=4)
    x = images(model)
    expected = model(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = model(x)
        loss = F.cross_entropy(got, torch.tensor([1, 2]))
    assert got.dtype == torch.bfloat16
    assert (got.float() - expected).abs().max() < 0.03 * expected.abs().max()
    loss.backward()
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        assert p.grad.dtype == torch.float32, name
        assert p.grad.isfinite().all(), name


def test_float64() -> None:
    model = build().double()
    x = images(model)
    assert model(x.double()).dtype == torch.float64
