"""The costs that are told are those that PyTorch counts."""

import weakref
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from tests.models.test_vim import PARAMETERS, build, images
from tustin import DISCRETIZATIONS
from tustin.discretize import BUILT_IN
from tustin.models.costs import COEFFICIENT_OPERATIONS, costs
from tustin.ops import native

CASES: list[dict[str, Any]] = [
    {"img_size": 64, "patch_size": 8, "embed_dim": 64, "depth": 3},
    {
        "img_size": (40, 24),
        "patch_size": 8,
        "stride": 4,
        "in_chans": 1,
        "embed_dim": 40,
        "d_state": 5,
        "num_classes": 0,
    },
]


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_by_part_are_all_of_them(name: str) -> None:
    with torch.device("meta"):
        model: Any = timm.create_model(name)
    told = costs(model)
    assert sum(told.parameters.values()) == PARAMETERS[name]
    assert min(told.parameters.values()) > 0
    assert told.tokens == model.pos_embed.shape[1]
    assert told.memory["weights"] == 4 * PARAMETERS[name]
    assert set(told.flops) == set(told.parameters)


@pytest.mark.parametrize("case", CASES)
def test_products_are_what_the_flop_counter_counts(case: dict[str, Any]) -> None:
    model = build(**case)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(images(model, batch=1))
    told = costs(model)
    L, d = told.tokens, model.embed_dim
    sums = len(model.layers) * (L * 2 * d + L * d)  # of out_proj: the two directions added, and halved
    products = ("patch embedding", "in_proj", "x_proj", "dt_proj", "out_proj", "head")
    assert sum(told.flops[part] for part in products) - sums == counter.get_total_flops()


def test_what_a_learned_lambda_costs() -> None:
    plain, mixed = costs(build(discretization="mamba")), costs(build(discretization="exptrap"))
    model = build(discretization="exptrap")
    assert sum(mixed.parameters.values()) == sum(p.numel() for p in model.parameters())
    added = {part: count - plain.parameters.get(part, 0) for part, count in mixed.parameters.items()}
    D, rank = 2 * model.embed_dim, -(-model.embed_dim // 16)
    assert {part: count for part, count in added.items() if count} == {
        "mix_proj": len(model.layers) * 2 * (2 * D * rank + D)
    }
    assert set(mixed.flops) == set(mixed.parameters)


def test_flops_of_another_size_of_images() -> None:
    model = build(img_size=32, patch_size=8)
    told = costs(model, img_size=(64, 32))
    assert told.tokens == 33
    bigger = build(img_size=(64, 32), patch_size=8)
    assert told.flops == costs(bigger).flops


def test_the_scan_by_rule() -> None:
    """Checked by hand for one state, one channel and one token: 7 of the recurrence and 2 for each sample before, 11 of
    the channel, α and β."""
    model = build(img_size=8, patch_size=8, embed_dim=16, depth=1, d_state=1)
    told = costs(model)
    states = 2 * 2 * 32  # directions, tokens, channels
    assert told.scan_flops == {
        name: states * (18 + 2 * (rule.taps - 1) + COEFFICIENT_OPERATIONS[name])
        for name, rule in DISCRETIZATIONS.items()
    }
    assert set(COEFFICIENT_OPERATIONS) == {discretization.name for discretization in BUILT_IN}
    assert told.flops["scan"] == told.scan_flops[model.config["discretization"]]


def test_the_page_shows_the_counts() -> None:
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    for name, count in COEFFICIENT_OPERATIONS.items():
        assert f"\n| {name} | {count} | " in page


@pytest.mark.skipif(native.missing() is not None, reason="the native backend is not built")
@pytest.mark.parametrize("case", CASES)
def test_memory_that_training_keeps(case: dict[str, Any]) -> None:
    model = build(**case)
    x = images(model, batch=3)
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in parameters:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(x)
    measured = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    of_weights = 2 * 2 * 4 * sum(block.mixer.A_log.numel() for block in model.layers)  # exp(A_log) and A, not per image
    assert costs(model, batch_size=3).memory["activations_training"] == pytest.approx(measured - of_weights, rel=0.05)


@pytest.mark.skipif(native.missing() is not None, reason="the native backend is not built")
@pytest.mark.parametrize("case", CASES)
def test_memory_at_the_peak_of_inference(case: dict[str, Any]) -> None:
    model = build(**case)
    x = images(model, batch=8)
    with torch.no_grad(), _Living() as living:
        model(x)
    told = costs(model, batch_size=8).memory["activations_inference"]
    assert told == pytest.approx(living.peak + x.nbytes, rel=0.05)


class _Living(TorchDispatchMode):
    """Adds up the storages that are alive."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inputs = {t.untyped_storage().data_ptr() for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
        out = func(*args, **(kwargs or {}))
        for tensor in (leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in inputs and storage._cdata not in self.known:
                self.known.add(storage._cdata)
                self.now += storage.nbytes()
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self._gone, storage._cdata, storage.nbytes())
        return out

    def _gone(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.now -= size
