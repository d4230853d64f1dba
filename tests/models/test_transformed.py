"""The model in the hands of others: traced, differentiated sample by sample, and with its layers replaced."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from tests.models.test_vim import build, images


@pytest.mark.parametrize("gradients", [True, False])
def test_trace(gradients: bool) -> None:
    """With PyTorch's own check, which computes what was traced without gradients; any batch goes in, and it trains."""
    model = build(depth=1)
    with torch.set_grad_enabled(gradients), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of branches by size, and that tracing is deprecated
        traced = torch.jit.trace(model, images(model))
    x = images(model, batch=5)
    assert torch.equal(traced(x), model(x))
    expected = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    for got, gradient in zip(
        torch.autograd.grad(traced(x).square().sum(), list(traced.parameters())), expected, strict=True
    ):
        torch.testing.assert_close(got, gradient)


def test_gradients_of_single_samples() -> None:
    model = build(depth=1)
    x = images(model, batch=3)
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(parameters: dict[str, Tensor], image: Tensor) -> Tensor:
        return functional_call(model, parameters, (image[None],)).square().sum()

    got = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
    for i, image in enumerate(x):
        expected = torch.autograd.grad(model(image[None]).square().sum(), list(model.parameters()))
        for name, gradient in zip(parameters, expected, strict=True):
            torch.testing.assert_close(got[name][i], gradient, rtol=1e-4, atol=1e-5 * float(gradient.abs().max()))


class Adapted(nn.Module):
    """A layer that somebody has put in the place of ours: it has the weight, and does more than multiply by it."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer = layer

    @property
    def weight(self) -> Tensor:
        return self.layer.weight

    @property
    def bias(self) -> Tensor | None:
        return self.layer.bias

    def forward(self, x: Tensor) -> Tensor:
        return 2 * self.layer(x)


@pytest.mark.parametrize("name", ["in_proj", "x_proj", "dt_proj", "out_proj"])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_a_layer_that_was_replaced_is_called(name: str, scale: float) -> None:
    model, doubled = build(depth=1, delta_scale=scale), build(depth=1, delta_scale=scale)
    doubled.load_state_dict(model.state_dict())
    mixer: Any = model.layers[0].mixer
    with torch.no_grad():
        for p in getattr(doubled.layers[0].mixer, name).parameters():
            p.mul_(2)
    setattr(mixer, name, Adapted(getattr(mixer, name)))
    x = images(model)
    torch.testing.assert_close(model(x), doubled(x), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")  # torch.ao tells of its future
@torch.no_grad()
def test_dynamic_quantization() -> None:
    model = build(depth=2)
    quantized = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    assert type(quantized.layers[0].mixer.in_proj) is not nn.Linear
    x = images(model)
    expected = model(x)
    assert (quantized(x) - expected).abs().max() < 0.1 * expected.abs().max()
