"""What is timed of language models: a prompt, a token after it, or a training step of a Mamba of transformers, float32.

All ways to run it share their weights, which are random: that does not change the time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..adapters import adapt
from ..report.measurement import Case, Count

PATHS = ("transformers", "mambapy", "tustin")
"""As transformers runs it on a CPU, the same with its `use_mambapy`, and adapted."""
PREFILL, DECODING, TRAINING = "prefill", "decoding", "training step"
WIDTH, STATES, VOCABULARY, LAYERS = 768, 16, 50280, 24
"""Of mamba-130m."""
_PROMPT = 16
"""Tokens before the one whose decoding is timed; their number does not change the time."""


@dataclass(frozen=True)
class LanguageCase(Case, kind="language"):
    """One way to do one piece of work."""

    path: str
    task: str
    length: Count
    layers: Count

    @property
    def work(self) -> Case:
        return replace(self, path="")

    def __str__(self) -> str:
        return f"{self.what} by {self.path}"

    @property
    def what(self) -> str:
        """The work in words."""
        tokens = "" if self.task == DECODING else f", {self.length} tokens"
        return f"{self.task}{tokens}, {self.layers} layers"


def make_call(case: LanguageCase) -> Callable[[], object]:
    """One call of what the case stands for, ready to be timed."""
    model = _model(case.path, case.layers).train(case.task == TRAINING)
    ids = torch.randint(0, VOCABULARY, (1, case.length), generator=torch.Generator().manual_seed(0))
    return {PREFILL: _prefill, DECODING: _decoding, TRAINING: _step}[case.task](model, ids)


def _prefill(model: nn.Module, ids: Tensor) -> Callable[[], object]:
    def prefill() -> object:
        with torch.inference_mode():
            return model.eval()(ids, use_cache=True, logits_to_keep=1)

    return prefill


def _decoding(model: nn.Module, ids: Tensor) -> Callable[[], object]:
    with torch.inference_mode():
        cache = model.eval()(ids[:, :1].expand(1, _PROMPT), use_cache=True).cache_params

    def decode() -> object:
        with torch.inference_mode():
            return model.eval()(ids[:, :1], use_cache=True, cache_params=cache)

    return decode


def _step(model: Any, ids: Tensor) -> Callable[[], object]:
    """Forward and backward of the layers alone: the loss of a large vocabulary takes longer than they do."""
    embedded = model.backbone.embeddings(ids).detach()

    def step() -> object:
        hidden = model.train().backbone(inputs_embeds=embedded, use_cache=False).last_hidden_state
        hidden.square().mean().backward()
        model.zero_grad()
        return None

    return step


@functools.cache
def _model(path: str, layers: int) -> nn.Module:
    model = _create(layers, use_mambapy=path == "mambapy")
    model.load_state_dict(_weights(layers), assign=True)
    model.tie_weights()  # type: ignore[operator]
    return adapt(model) if path == "tustin" else model


@functools.cache
def _weights(layers: int) -> dict[str, Tensor]:
    torch.manual_seed(0)
    return _create(layers).state_dict()


def _create(layers: int, **more: Any) -> nn.Module:
    import transformers  # here, because a process that times scans has no need of it

    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # it warns of its slow path, which is what we time
    more |= {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "state_size": STATES, "num_hidden_layers": layers}
    model: nn.Module = transformers.MambaForCausalLM(transformers.MambaConfig(**more))  # type: ignore[no-untyped-call]
    return model
