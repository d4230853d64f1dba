"""Every rule, forward and backward: against float64 on the CPU, and twice for the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..discretize import DISCRETIZATIONS, Discretization
from ..ops import native
from ..ops.accelerator import interpreted
from ..ops.scan import selective_scan
from .device import Device
from .outcome import FAILED, PASSED, Check, Finding
from .plan import Plan, Shape

ROUNDED = {torch.float16: 5e-4, torch.bfloat16: 4e-3}
"""Of what is rounded once to half precision, against the largest value."""
VALUES, DERIVATIVES = {torch.float32: 2e-6, **ROUNDED}, {torch.float32: 1e-5, **ROUNDED}
"""The tolerances of the tests, by the dtype of a result."""
FLOOR = 0.1
"""A gradient that vanishes everywhere, as that of A where a sequence is one token, is judged by this size."""

NARROW = ("u", "delta", "B", "C", "z")
"""The tensors that come in the dtype of a model; the others are its parameters and states."""


def checks(plan: Plan, device: Device) -> Iterator[Check]:
    """One for each rule and dtype."""
    for rule in plan.rules:
        for dtype in plan.dtypes:
            name = f"{rule}, {name_of(dtype)}"
            yield Check("scan", name, partial(_judge, rule, dtype, plan.shapes_of(rule, dtype), device))


def name_of(dtype: torch.dtype) -> str:
    """Without its package."""
    return str(dtype).removeprefix("torch.")


def cpu_backend() -> str:
    """What the GPU is compared with: C++ if it is there and the interpreter has not taken its place; it is as exact."""
    return "reference" if interpreted() or native.missing() else "native"


def _judge(rule: str, dtype: torch.dtype, shapes: tuple[Shape, ...], device: Device) -> Finding:
    worst = {"forward": 0.0, "backward": 0.0}
    for shape in shapes:
        x = inputs(shape, DISCRETIZATIONS[rule], dtype)
        how: dict[str, Any] = {"discretization": rule, "reverse": shape.reverse, "delta_softplus": True}
        expected = results({name: t.double() for name, t in x.items()}, dtype, **how, backend=cpu_backend())
        here = {name: t.to(device.device) for name, t in x.items()}
        first, second = (results(here, dtype, **how, backend="triton") for _ in range(2))
        for what, value in expected.items():
            got, again = first[what].cpu(), second[what].cpu()
            if not torch.equal(got, again) and not got.isnan().any():
                return Finding(FAILED, f"{what} has different bits the second time, for {shape}", {"same_bits": False})
            backward = "gradient" in what
            allowed = (DERIVATIVES if backward else VALUES)[got.dtype]
            if interpreted() and got.dtype == torch.bfloat16:
                allowed *= 2  # the interpreter cuts off the bits that a GPU rounds
            error = relative_error(got, value, FLOOR if backward else 0.0)
            share = error / allowed
            if not share <= 1:
                says = f"{what} is off by {error:.1e} of the largest value, allowed {allowed:.0e}, for {shape}"
                return Finding(FAILED, says, {"error": error, "allowed": allowed})
            side = "backward" if backward else "forward"
            worst[side] = max(worst[side], share)
    says = "values {forward:.0%} and gradients {backward:.0%} of the allowed error; the same bits twice"
    return Finding(PASSED, says.format(**worst), {"same_bits": True, **{f"{s}_share": v for s, v in worst.items()}})


def relative_error(got: Tensor, expected: Tensor, floor: float = 0.0) -> float:
    """The largest error by the largest value, or by `floor`; infinite where something is not finite."""
    if got.shape != expected.shape:
        return float("inf")
    if not got.numel():
        return 0.0
    error = (got.double() - expected.double()).abs()
    largest = max(float(expected.abs().max()), floor, 1e-30)
    return float(error.max()) / largest if error.isfinite().all() else float("inf")


def results(x: dict[str, Tensor], dtype: torch.dtype, **how: Any) -> dict[str, Tensor]:
    """Output, last state, and the gradient of every argument, of a loss on both; by name.

    Args:
        x: The arguments.
        dtype: To which the gradients of the output are rounded, whatever the dtype of the arguments.
        how: Options of the scan.
    """
    leaves: dict[str, Any] = {name: t.detach().requires_grad_() for name, t in x.items()}
    out, last = selective_scan(**leaves, **how, return_last_state=True)
    d_out, d_last = (torch.linspace(0.5, 1.5, max(t.numel(), 1))[: t.numel()].view(t.shape) for t in (out, last))
    weights = d_out.to(dtype).to(out), d_last.to(last)
    gradients = torch.autograd.grad((out, last), list(leaves.values()), weights)
    named = {f"gradient of {name}": g.detach() for name, g in zip(leaves, gradients, strict=True)}
    return {"output": out.detach(), "last state": last.detach(), **named}


def inputs(shape: Shape, rule: Discretization, dtype: torch.dtype) -> dict[str, Tensor]:
    """Random arguments on the CPU, the same every time; z = ΔA stays where the rule is stable, else rounding is all."""
    batch, D, L, N = shape.batch, shape.D, shape.L, shape.N
    random = torch.Generator().manual_seed(0)

    def normal(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=random)

    def uniform(low: float, high: float, *sizes: int) -> Tensor:
        return low + (high - low) * torch.rand(*sizes, generator=random)

    def matrix(form: str) -> Tensor:
        groups = next(g for g in (3, 2, 1) if D % g == 0)
        return normal(*{"constant": (D, N), "token": (batch, N, L), "grouped": (batch, groups, N, L)}[form])

    fastest = min(4.0, -rule.stable[0] / 2.5)  # softplus makes no step below longer than 2.5
    x = {
        "u": normal(batch, D, L),
        "delta": uniform(-3.0, 2.0, batch, D, L),
        "A": -uniform(0.05, fastest, D, N),
        "B": matrix(shape.B),
        "C": matrix(shape.C),
        "D": normal(D),
        "delta_bias": uniform(0.0, 0.3, D),
    }
    if shape.everything:
        x |= {"z": normal(batch, D, L), "initial_state": normal(batch, D, N)}
        if rule.state_parts > 1:  # the products B·u before the first token, and the steps
            past, steps = normal(batch, D, N, rule.taps - 1), uniform(0.05, 2.0, batch, D, 1, rule.steps - 1)
            x["initial_state"] = torch.cat([x["initial_state"][..., None], past, steps.expand(batch, D, N, -1)], -1)
        if rule.mixes:
            x["mix"] = uniform(0.0, 1.0, batch, D, L)
    if shape.channel_last:
        x |= {name: t.mT.contiguous().mT for name, t in x.items() if name in NARROW and t.ndim > 2}
    return {name: t.to(dtype) if name in NARROW else t for name, t in x.items()}
