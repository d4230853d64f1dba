"""What is timed of whole models: a forward pass or a training step on random images, in float32.

Models of one name share their weights, tensor by tensor: the rules differ in nothing else, not even in where the
numbers lie in memory. Weights are random, which does not change the time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..report.measurement import Result
from ..report.speed import ONNXRUNTIME, Candidate, ModelCase
from ..report.table import NOTHING, Table

PEERS = {
    "vim_tiny_patch16_224": "deit_tiny_patch16_224",
    "vim_small_patch16_224": "deit_small_patch16_224",
    "vim_base_patch16_224": "deit_base_patch16_224",
}
"""What a user would take instead: a transformer with as many tokens, as wide."""


def own_size(model: str) -> int:
    """The side of the images that a model is made for."""
    return _input_size(model)[-1]


def smallest_size(model: str) -> int:
    """The side of an image of 2 x 2 patches."""
    return 2 * int(model.split("patch")[1].split("_")[0])


def make_call(case: ModelCase) -> Callable[[], object]:
    """One call of what the case stands for, ready to be timed."""
    model = _model(case.candidate, case.img_size, case.training, case.device)
    images = _images(case.candidate.model, case.batch, case.img_size, case.device)
    if case.candidate.backend == ONNXRUNTIME:
        from . import onnx_session  # here, because the others need no exporter

        return onnx_session.make_call(model, images, case.threads)
    if case.training:
        return _step(model, images)

    def infer() -> object:
        with torch.inference_mode():
            return model(images)

    return infer


def _step(model: nn.Module, images: Tensor) -> Callable[[], object]:
    """Forward, backward and AdamW; with a rate of 0, so that every step does the same work on the same weights."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
    labels = torch.arange(len(images), device=images.device)

    def step() -> object:
        logits = model(images)
        nn.functional.cross_entropy(logits, labels % logits.shape[1]).backward()
        optimizer.step()
        optimizer.zero_grad()
        return None

    return step


@functools.cache
def _model(candidate: Candidate, img_size: int, training: bool, device: str) -> nn.Module:
    own: dict[str, Any] = {}
    if candidate.discretization:
        backend = "auto" if candidate.backend == ONNXRUNTIME else candidate.backend
        own = {"discretization": candidate.discretization, "backend": backend}
    model = _create(candidate.model, img_size, **own).to(device)
    model.load_state_dict(_weights(candidate.model, img_size, device), assign=True)
    model.train(training)
    if candidate.compiled:
        model.compile()
    return model


@functools.cache
def _weights(model: str, img_size: int, device: str) -> dict[str, Tensor]:
    torch.manual_seed(0)
    return _create(model, img_size).to(device).state_dict()


@functools.lru_cache(maxsize=1)  # the same for all candidates of a size, and then for those of the next
def _images(model: str, batch: int, img_size: int, device: str) -> Tensor:
    channels = _input_size(model)[0]
    return torch.randn(batch, channels, img_size, img_size, generator=torch.Generator().manual_seed(0)).to(device)


def _create(model: str, img_size: int, **options: Any) -> nn.Module:
    created: nn.Module = _timm().create_model(model, img_size=img_size, **options)
    return created


def _input_size(model: str) -> tuple[int, ...]:
    return tuple(_timm().get_pretrained_cfg(model).input_size)


def _timm() -> Any:
    import timm  # here, because a process that times scans has no need of it

    from .. import models  # noqa: F401  from now on timm knows Vision Mamba

    return timm


_GROUPS = {
    "selective": "scan",
    "causal_co": "short convolution",
    "mm": "matrix products",
    "linear": "matrix products",
    "convolution": "patch embedding",
    "norm": "norm",
    "gated": "gate",
}
"""What an operation belongs to, by a part of its name."""


def shares(call: Callable[[], object]) -> dict[str, float]:
    """The groups of operations that a call consists of, each with its share of the time, the largest first."""
    call()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call()
    own = {event.key.lower(): event.self_cpu_time_total for event in profile.key_averages()}
    groups: dict[str, float] = {}
    for name, time in own.items():
        group = next((group for part, group in _GROUPS.items() if part in name), "everything else")
        groups[group] = groups.get(group, 0.0) + time / sum(own.values())
    return dict(sorted(groups.items(), key=lambda item: -item[1]))


def shares_tables(result: Result, title: str) -> list[Table]:
    """What the calls in the notes of a result consist of; none if there are no such notes."""
    if not (shares := result.notes.get("shares")):
        return []
    groups = dict.fromkeys(group for share in shares.values() for group in share)
    rows = [
        (group, *(f"{share[group]:.0%}" if group in share else NOTHING for share in shares.values()))
        for group in groups
    ]
    return [Table("shares", title, ("", *shares), rows, "From PyTorch's profiler, for one call.")]
