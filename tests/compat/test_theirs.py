"""Code that we did not write, from PyPI: it imports mamba_ssm, and runs on the stand-in as it is."""

import importlib
import importlib.util
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest
import torch
from torch import nn

from tests.programs import TO_TEST_IT
from tests.tolerances import assert_close

from .stand_in import installed

VARIANTS = (
    *(f"mamba_vision_{size}" for size in ("T", "T2", "S", "B", "B_21k", "L", "L_21k", "L2", "L2_512_21k")),
    *(f"mamba_vision_L3_{size}_21k" for size in (256, 512)),
)
needs_mambavision = pytest.mark.skipif(
    importlib.util.find_spec("mambavision") is None,
    reason=f"MambaVision is not installed{TO_TEST_IT}pip install --no-deps mambavision",
)


@pytest.fixture(scope="module")
def mambavision() -> Iterator[ModuleType]:
    with installed(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it imports from where timm's names used to be
        yield importlib.import_module("mambavision.models.mamba_vision")


@needs_mambavision
def test_all_variants_are_tested(mambavision: ModuleType) -> None:
    registry = importlib.import_module("mambavision.models.registry")
    assert sorted(registry._model_entrypoints) == sorted(VARIANTS)


@needs_mambavision
@pytest.mark.parametrize("name", VARIANTS)
def test_mambavision_made_small(mambavision: ModuleType, name: str) -> None:
    """The windows and the layer scale of each variant, in few channels and layers, on a picture of odd size."""
    small = {"dim": 16, "num_heads": [1, 2, 4, 8], "in_dim": 16, "depths": [1, 1, 2, 2], "num_classes": 10}
    _train(getattr(mambavision, name)(**small), torch.randn(2, 3, 64, 48))


@needs_mambavision
@pytest.mark.long
@pytest.mark.parametrize("name", VARIANTS)
def test_mambavision_in_full(mambavision: ModuleType, name: str) -> None:
    _train(getattr(mambavision, name)(), torch.randn(1, 3, 224, 224))


def _train(model: nn.Module, images: torch.Tensor) -> None:
    """A forward pass and a step of training: every parameter has a finite gradient, and the loss falls."""
    torch.manual_seed(0)
    model.eval()  # no dropped paths: with few layers and pictures nothing may be left to chance
    with torch.no_grad():
        logits = model(images)
    assert logits.isfinite().all()
    labels = torch.zeros(len(images), dtype=torch.long)
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients.values())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 1e-3 * parameter.grad
    assert nn.functional.cross_entropy(model(images), labels) < loss


@needs_mambavision
def test_mambavision_gives_the_same_with_the_slow_scan(
    mambavision: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model = mambavision.mamba_vision_T(depths=[1, 1, 2, 2]).eval()
    images = torch.randn(1, 3, 224, 224)
    fast = _logits_and_gradient(model, images)
    interface = importlib.import_module("mamba_ssm.ops.selective_scan_interface")
    monkeypatch.setattr(mambavision, "selective_scan_fn", interface.selective_scan_ref)
    for got, expected in zip(fast, _logits_and_gradient(model, images), strict=True):
        assert_close(got, expected, {torch.float32: 1e-5})


def _logits_and_gradient(model: nn.Module, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    model.zero_grad()
    logits = model(images)
    logits.square().sum().backward()
    return logits, torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("build", ["language", "vision"])
def test_mambapy(stand_in: None, build: str) -> None:
    """Its layers ask for mamba_ssm's scan where told to, and compute the same as with their own."""
    mamba = importlib.import_module("mambapy.mamba")
    builders: dict[str, Callable[..., nn.Module]] = {"language": mamba.Mamba, "vision": _vision_blocks}
    torch.manual_seed(0)
    theirs = builders[build](mamba.MambaConfig(d_model=16, n_layers=2))
    ours = builders[build](mamba.MambaConfig(d_model=16, n_layers=2, use_cuda=True))
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 33, 16)
    results = []
    for model in (ours, theirs):
        y = model(x)
        y.square().sum().backward()
        results.append((y, torch.cat([parameter.grad.flatten() for parameter in model.parameters()])))
    for got, expected in zip(*results, strict=True):
        assert_close(got, expected, {torch.float32: 1e-5})
    blocks = [module for module in ours.modules() if isinstance(module, mamba.MambaBlock)]
    assert len(blocks) == 2
    for block in blocks:
        assert block.selective_scan_cuda.__module__ == "mamba_ssm.ops.selective_scan_interface"


def _vision_blocks(config: object) -> nn.Module:
    """Blocks one after the other, without the residual stream of its language model."""
    mamba = importlib.import_module("mambapy.mamba")
    return nn.Sequential(*(mamba.MambaBlock(config) for _ in range(2)))
