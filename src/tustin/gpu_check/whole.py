"""What a user does with the scan: a training step of a model, torch.compile, and CUDA graphs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import timm
import torch
from torch import Tensor, nn

from .. import models  # noqa: F401  from now on timm knows them
from ..discretize import DISCRETIZATIONS
from ..ops.accelerator import interpreted
from ..ops.scan import selective_scan
from .device import Device
from .outcome import FAILED, PASSED, SKIPPED, Check, Finding
from .plan import Plan, Shape
from .scans import cpu_backend, inputs, relative_error

LOSS, GRADIENTS, UPDATED = 1e-4, 1e-3, 1e-4
"""How far the loss, the gradients and the weights after an update may differ between CPU and GPU, both in float32.

Libraries add up matrix products in different orders, over all layers and back.
"""
RATE = 0.1


def checks(plan: Plan, device: Device) -> Iterator[Check]:
    """Each once."""
    yield Check("use", f"a training step of {plan.model}, CPU and GPU", partial(_step, plan, device))
    yield Check("use", "torch.compile", partial(_compiled, plan, device))
    yield Check("use", "CUDA graphs", partial(_graphs, plan, device))


# --- a training step --------------------------------------------------------------------------------------------------


def _step(plan: Plan, device: Device) -> Finding:
    with _exact_products():
        expected = _train(plan, torch.device("cpu"), cpu_backend())
        got = _train(plan, device.device, "triton")
    errors = {name: _distance(got[name], expected[name]) for name in expected}
    allowed = {"loss": LOSS, "gradients": GRADIENTS, "weights": UPDATED}
    shown = ", ".join(f"{name} {errors[name]:.1e} (allowed {allowed[name]:.0e})" for name in errors)
    says = f"relative difference of CPU and GPU: {shown}"
    passed = all(errors[name] <= allowed[name] for name in errors)
    return Finding(PASSED if passed else FAILED, says, {f"{name}_error": error for name, error in errors.items()})


@contextmanager
def _exact_products() -> Iterator[None]:
    """Matrix products in float32, and not in TF32."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def _train(plan: Plan, device: torch.device, backend: str) -> dict[str, list[Tensor]]:
    """Loss, gradients and updated weights of one step of SGD, from the same weights and images every time."""
    shape: dict[str, Any] = {"img_size": plan.image_size} | ({"depth": plan.depth} if plan.depth else {})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = timm.create_model(plan.model, discretization="zoh", backend=backend, num_classes=10, **shape)
        images = torch.randn(plan.images, 3, plan.image_size, plan.image_size)
    model, images = model.to(device).eval(), images.to(device)  # in eval nothing is dropped at random
    labels = torch.arange(plan.images, device=device) % 10
    weights = dict(model.named_parameters())
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    gradients = {name: t.grad for name, t in weights.items() if t.grad is not None}
    torch.optim.SGD(model.parameters(), lr=RATE).step()
    return {
        "loss": [loss.detach().cpu()],
        "gradients": [gradients[name].cpu() for name in sorted(gradients)],
        "weights": [weights[name].detach().cpu() for name in sorted(gradients)],
    }


def _distance(got: list[Tensor], expected: list[Tensor]) -> float:
    """The length of the difference by that of what was expected, over all tensors."""
    if len(got) != len(expected):
        return float("inf")
    difference = sum(float((a.double() - b.double()).square().sum()) for a, b in zip(got, expected, strict=True))
    size = sum(float(b.double().square().sum()) for b in expected)
    return (difference / size) ** 0.5 if size else float("inf")


# --- torch.compile and CUDA graphs ------------------------------------------------------------------------------------


def _small(plan: Plan, device: Device) -> dict[str, Tensor]:
    """Arguments of a small scan of `bil`, in the first dtype."""
    shape = Shape(1, 6, 19, 3) if interpreted() else Shape(2, 64, 65, 16)
    x = inputs(shape, DISCRETIZATIONS["bil"], plan.dtypes[0])
    return {name: t.to(device.device) for name, t in x.items()}


def _call(u: Tensor, **others: Any) -> Tensor:
    """A scan between two other operations, as in a model."""
    out = selective_scan(u=torch.tanh(u), **others, delta_softplus=True, discretization="bil", backend="triton")
    assert isinstance(out, Tensor)
    return out.sin()


def _with_gradient(call: Any, x: dict[str, Tensor]) -> list[Tensor]:
    leaves = {name: t.detach().requires_grad_() for name, t in x.items()}
    out = call(**leaves)
    return [out.detach(), *torch.autograd.grad(out, list(leaves.values()), torch.ones_like(out))]


def _compiled(plan: Plan, device: Device) -> Finding:
    x = _small(plan, device)
    expected = _with_gradient(_call, x)
    got = _with_gradient(torch.compile(_call, fullgraph=True), x)
    error = max(relative_error(a.cpu(), b.cpu()) for a, b in zip(got, expected, strict=True))
    allowed = 1e-5
    says = f"compiled, output and gradients differ by {error:.1e} of the largest value (allowed {allowed:.0e})"
    return Finding(PASSED if error <= allowed else FAILED, says, {"error": error})


def _graphs(plan: Plan, device: Device) -> Finding:
    """Forward and backward are recorded once and played with other numbers: the same bits as without a graph."""
    if device.device.type != "cuda":
        return Finding(SKIPPED, f"there are no CUDA graphs on {device.device.type}")
    x = _small(plan, device)
    for _ in range(2):  # what is recorded must have been compiled
        _with_gradient(_call, x)
    device.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = _with_gradient(_call, x)
    x["u"].copy_(x["u"] * 0.5 + 0.25)
    graph.replay()
    device.synchronize()
    same = all(torch.equal(a, b) for a, b in zip(recorded, _with_gradient(_call, x), strict=True))
    says = "replayed with other inputs, a graph of forward and backward gives "
    return Finding(PASSED if same else FAILED, says + ("the same bits" if same else "other bits"), {"same_bits": same})
