"""Where a model goes wrong: the first tensor that is not finite, and how far the steps are from stability."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..discretize import Discretization, get_discretization
from ..ops.scan import check_values, selective_scan
from .mixer import Mixer
from .vision_mamba import plain_model

__all__ = ["Diagnosis", "LayerSteps", "NonFinite", "diagnose"]


@dataclass(frozen=True)
class NonFinite:
    """A tensor that holds a NaN or an infinity."""

    layer: str
    """Name of the module, as in `model.named_modules()`; "input" for the batch."""
    tensor: str
    """Which of its tensors: "input", a parameter's name, or what it computes."""
    count: int
    total: int
    first_value: str
    """ "nan", "inf" or "-inf"."""
    first_index: tuple[int, ...]

    def __str__(self) -> str:
        return (
            f"{self.layer}: {self.tensor} has {self.count} non-finite of {self.total} values, "
            f"the first is {self.first_value} at {self.first_index}"
        )


@dataclass(frozen=True)
class LayerSteps:
    """The steps of one direction of one layer: z = Δ·A over all tokens, channels and states."""

    layer: str
    direction: str
    """ "forward" or "backward"."""
    z_range: tuple[float, float] | None
    """The smallest and the largest finite z; None if there is none."""
    unstable: float
    """Share of the pairs (Δ, A) whose z is outside the rule's stability interval; one that is not finite counts."""


@dataclass(frozen=True)
class Diagnosis:
    """The result of `diagnose`; `str` gives a table, `as_facts` plain values."""

    discretization: str
    stable: tuple[float, float]
    """The interval of z that the rule declares."""
    first_non_finite: NonFinite | None
    layers: tuple[LayerSteps, ...]

    @property
    def healthy(self) -> bool:
        """Everything is finite and every step is stable."""
        return self.first_non_finite is None and not any(steps.unstable for steps in self.layers)

    def as_facts(self) -> dict[str, Any]:
        """Plain values, for JSON; a bound without end is the text "inf" or "-inf"."""
        bounds = [bound if abs(bound) < float("inf") else str(bound) for bound in self.stable]
        return {**asdict(self), "stable": bounds, "healthy": self.healthy}

    def __str__(self) -> str:
        first = f"first non-finite: {self.first_non_finite}" if self.first_non_finite else "every tensor is finite"
        low, high = self.stable
        lines = [first, f"{self.discretization} is stable for z = Δ·A from {low:.4g} to {high:.4g}"]
        width = max((len(steps.layer) for steps in self.layers), default=0)
        for steps in self.layers:
            found = "z from {:9.3g} to {:9.3g}".format(*steps.z_range) if steps.z_range else "no z is finite"
            lines.append(f"{steps.layer:{width}} {steps.direction:8}  {found:29}  unstable {steps.unstable:.1%}")
        return "\n".join(lines)


@torch.no_grad()
def diagnose(model: nn.Module, batch: Tensor) -> Diagnosis:
    """Run the model on a batch. Find the first tensor that is not finite, and the layers whose steps are unstable.

    Tensors are checked in the order of use: the batch, and then for each module its parameters, its intermediate
    results (in a mixer: x, gate, u, Δ, A, B, C and y of both directions) and its output. This is slower than a forward
    pass. The model, its mode and its gradients do not change.
    """
    model = plain_model(model)
    rule = get_discretization(model.config["discretization"])
    watch = _Watch()
    layers: list[LayerSteps] = []

    def before(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: tuple[Any, ...]) -> None:
            watch.parameters(name, module)
            if isinstance(module, Mixer):
                layers.extend(_look_into(module, name, inputs[0], rule, watch))

        return hook

    def after(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
            watch.tensor(name, "output", output)

        return hook

    watch.tensor("input", "batch", batch)
    watch.parameters("model", model)  # the position embedding and the class token
    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if name:
                hooks.callback(module.register_forward_pre_hook(before(name)).remove)
                hooks.callback(module.register_forward_hook(after(name)).remove)
        for module in model.modules():
            hooks.callback(setattr, module, "training", module.training)
        model.eval()
        hooks.enter_context(check_values(False))  # which would stop at the first scan
        model(batch)
    return Diagnosis(rule.name, rule.stable, watch.first, tuple(layers))


class _Watch:
    """Keeps the first tensor that is not finite."""

    def __init__(self) -> None:
        self.first: NonFinite | None = None

    def tensor(self, layer: str, name: str, tensor: Tensor) -> None:
        if self.first is not None or bool(tensor.isfinite().all()):
            return
        bad = (~tensor.isfinite()).nonzero()
        index = tuple(int(i) for i in bad[0])
        self.first = NonFinite(layer, name, len(bad), tensor.numel(), str(float(tensor[index])), index)

    def parameters(self, layer: str, module: nn.Module) -> None:
        """Its own and, of a mixer, those of its parts, which it does not call."""
        for name, parameter in module.named_parameters(recurse=isinstance(module, Mixer)):
            self.tensor(layer, name, parameter)


def _look_into(mixer: Mixer, name: str, tokens: Tensor, rule: Discretization, watch: _Watch) -> Iterator[LayerSteps]:
    """Compute what the mixer is about to compute, step by step."""
    halves = F.linear(tokens, mixer.in_proj.weight).transpose(1, 2).chunk(2, dim=1)
    for half, x in zip(("x", "gate"), halves, strict=True):
        watch.tensor(name, f"{half} (of in_proj)", x)
    for direction, reverse in (("forward", False), ("backward", True)):
        arguments = mixer.scan_arguments(halves[0], reverse)
        if not mixer.state:
            watch.tensor(name, f"u ({direction})", arguments["u"])
            continue
        delta = arguments["delta"].to(arguments["A"].dtype)
        if arguments["delta_softplus"]:
            delta = F.softplus(delta + arguments["delta_bias"][:, None])
        for part, tensor in {**arguments, "delta": delta}.items():
            if isinstance(tensor, Tensor):
                watch.tensor(name, f"{part} ({direction})", tensor)
        y = selective_scan(**arguments, z=halves[1], discretization=rule, backend=mixer.backend)
        assert isinstance(y, Tensor)
        watch.tensor(name, f"y ({direction})", y)
        yield _steps(name, direction, delta, arguments["A"], rule)


def _steps(name: str, direction: str, delta: Tensor, A: Tensor, rule: Discretization) -> LayerSteps:
    """One state after the other: a tensor of all z would be N times as large as Δ."""
    low, high = rule.stable
    ends: list[float] = []
    unstable = 0
    for column in A.unbind(1):
        z = delta * column[:, None]  # (batch, D, L)
        finite = z[z.isfinite()]
        if finite.numel():
            ends += [float(finite.min()), float(finite.max())]
        unstable += z.numel() - int(((z >= low) & (z <= high)).sum())
    pairs = delta.numel() * A.shape[1]
    z_range = (min(ends), max(ends)) if ends else None
    return LayerSteps(name, direction, z_range, unstable / pairs if pairs else 0.0)
