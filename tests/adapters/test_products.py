"""The linear layers of adapted mixers by the faster library: the same numbers, and only where that is possible."""

from collections.abc import Callable

import torch
from torch.utils.flop_counter import FlopCounterMode

import tustin
from tests.adapters.language_models import built, each_model, logits, mamba, tokens
from tests.ops.test_products import needs_onednn, taken  # noqa: F401  # a fixture
from tests.tolerances import assert_close


@needs_onednn
@each_model
def test_prompts(build: Callable[..., torch.nn.Module], taken: list[str]) -> None:  # noqa: F811
    model, own = tustin.adapt(built(build)), built(build)
    with torch.inference_mode():
        got = logits(model, tokens())
    assert taken
    assert_close(got, logits(own, tokens()), {torch.float32: 1e-4})


@needs_onednn
@each_model
def test_training(build: Callable[..., torch.nn.Module], taken: list[str]) -> None:  # noqa: F811
    model, own = tustin.adapt(built(build)), built(build)
    for each in (model, own):
        each(tokens()).logits.square().sum().backward()
    assert len(taken) > 9
    for (name, got), expected in zip(model.named_parameters(), own.parameters(), strict=True):
        if expected.grad is not None:
            assert_close(got.grad, expected.grad, {torch.float32: 1e-3}, name)


def test_where_it_is_left_alone(taken: list[str]) -> None:  # noqa: F811
    model = tustin.adapt(built(mamba))
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16):
            model(tokens())
        with FlopCounterMode(display=False) as counter:
            model(tokens())
        assert counter.get_total_flops() > 0
        model(tokens(1, 1))
        model.double()(tokens())
    assert taken == []
