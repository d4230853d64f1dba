"""How long a scan takes, beside mamba_ssm's and beside the estimate of docs/gpu.md; and how much memory it needs."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from ..bench.workloads import GPU_PEER, make_inputs, missing
from ..ops.scan import selective_scan
from .device import Device
from .outcome import FAILED, PASSED, SKIPPED, Check, Finding
from .plan import Plan

PASSES = {"forward": False, "forward and backward": True}
_WARM_UP = 2


def checks(plan: Plan, device: Device) -> Iterator[Check]:
    """The peer first, so that each rule can be compared with it."""
    yield Check("speed", GPU_PEER, partial(_peer, plan, device))
    for rule in plan.speed_rules:
        yield Check("speed", rule, partial(_own, rule, plan, device))


def _own(rule: str, plan: Plan, device: Device) -> Finding:
    scan = functools.partial(selective_scan, discretization=rule, backend="triton")
    measured = _measure(scan, "channel-last", plan, device)
    for name, estimated in _estimates(rule, plan, device).items():
        measured[f"{name}_estimate_us"] = estimated
    times = ", ".join(f"{name} {measured[f'{name}_us']:.1f} µs" for name in PASSES)
    return Finding(PASSED, times, measured)


def _peer(plan: Plan, device: Device) -> Finding:
    if not device.is_gpu:
        return Finding(SKIPPED, f"{GPU_PEER} runs on GPUs")
    if reason := missing(GPU_PEER):
        return Finding(SKIPPED, reason)
    from mamba_ssm.ops.selective_scan_interface import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
        selective_scan_fn,
    )

    try:
        measured = _measure(selective_scan_fn, "token-last", plan, device)
    except Exception as error:
        return Finding(FAILED, f"{GPU_PEER} is installed but does not run: {type(error).__name__}", {})
    return Finding(PASSED, ", ".join(f"{name} {measured[f'{name}_us']:.1f} µs" for name in PASSES), measured)


def _measure(scan: Callable[..., Any], layout: str, plan: Plan, device: Device) -> dict[str, Any]:
    """Medians in microseconds, and the memory that a call needs at most beside its arguments, in bytes.

    The scan is that of docs/gpu.md: with bias, softplus and skip, the gate outside.
    """
    x = make_inputs(plan.speed_batch, plan.speed_length, "float32", layout, str(device.device))
    arguments = x.u, x.raw_delta, x.A, x.B, x.C, x.D, None, x.bias, True
    leaves = [t for t in arguments if isinstance(t, torch.Tensor)]

    def forward() -> object:
        with torch.no_grad():
            return scan(*arguments)

    def both() -> object:
        return torch.autograd.grad(scan(*arguments), leaves, x.d_out)

    measured: dict[str, Any] = {}
    for name, call in zip(PASSES, (forward, both), strict=True):
        for _ in range(_WARM_UP if device.is_gpu else 0):
            call()
        measured[f"{name}_peak_bytes"] = _peak(call, device)
        laps = [_lap(call, plan.lap_seconds, device) for _ in range(plan.laps)]
        measured[f"{name}_us"] = statistics.median(laps) * 1e6
        measured[f"{name}_slowest_us"], measured[f"{name}_fastest_us"] = max(laps) * 1e6, min(laps) * 1e6
    return measured


def _lap(call: Callable[[], object], seconds: float, device: Device) -> float:
    """Seconds of a call, of as many as take that long and are waited for together."""
    device.synchronize()
    start, calls = time.perf_counter(), 0
    while calls == 0 or time.perf_counter() - start < seconds:
        call()
        calls += 1
    device.synchronize()
    return (time.perf_counter() - start) / calls


def _peak(call: Callable[[], object], device: Device) -> int | None:
    if not device.is_gpu:
        return None
    device.synchronize()
    before = device.module.memory_allocated(device.device)
    device.module.reset_peak_memory_stats(device.device)
    call()
    device.synchronize()
    return int(device.module.max_memory_allocated(device.device)) - int(before)


def _estimates(rule: str, plan: Plan, device: Device) -> dict[str, float]:
    """The least microseconds of each pass by the compiled code and the data sheet; none for a GPU without one."""
    if not device.is_gpu or device.target is None:
        return {}
    from ..doctor.gpu import cases, roofline, survey

    if (plan.speed_batch, plan.speed_length) != (cases.BATCHES[""], cases.L):
        return {}
    gpu = roofline.described(device.target, device.name, device.properties)
    if gpu is None:
        return {}
    chosen = [cases.named(f"scan {name}", rule, "float32") for name in ("forward", "backward")]
    found = survey.survey([device.target], chosen, lambda text, done, total: None)
    forward, backward = (roofline.estimate(gpu, one.case, one.code).seconds * 1e6 for one in found)
    return {"forward": forward, "forward and backward": forward + backward}
