"""What this machine offers: versions, processor, GPUs, and which scan backends are there or why one is not."""

from __future__ import annotations

import os
import platform
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import __version__
from ..discretize import DISCRETIZATIONS, Discretization
from ..ops.dispatch import choose
from ..ops.scan import BACKENDS

_X86_LEVELS = {  # https://gitlab.com/x86-psABIs/x86-64-ABI, in the spelling of /proc/cpuinfo
    "x86-64-v2": {"cx16", "lahf_lm", "pni", "popcnt", "sse4_1", "sse4_2", "ssse3"},
    "x86-64-v3": {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"},
    "x86-64-v4": {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"},
}
_NOTEWORTHY = {  # beyond the levels: what a kernel for this machine might use
    *("avx_vnni", "avx512_bf16", "avx512_fp16", "avx512_vnni", "amx_bf16", "amx_tile"),
    *("asimd", "asimdhp", "bf16", "i8mm", "sve", "sve2", "sme"),
}
_GPU_BUILDS = {"CUDA": torch.version.cuda, "ROCm": torch.version.hip, "XPU": torch.version.xpu}


def collect() -> dict[str, Any]:
    """Everything `tustin doctor` shows, as plain data."""
    gpus, no_gpu = _gpus()
    devices = dict.fromkeys(["cpu", *(gpu["device"].split(":")[0] for gpu in gpus)])
    return {
        "versions": {
            "tustin": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "platform": platform.platform(),
        "cpu": _cpu(_read_cpuinfo()),
        "gpus": gpus,
        "no_gpu_because": no_gpu,
        "backends": [
            {"name": backend.name, "description": backend.description, "missing_because": backend.missing()}
            for backend in BACKENDS.values()
        ],
        "auto": {device: {rule.name: _auto(device, rule) for rule in DISCRETIZATIONS.values()} for device in devices},
    }


# --- processor --------------------------------------------------------------------------------------------------------


def _read_cpuinfo() -> str:
    """The kernel's description of the processor; empty on systems that have none."""
    path = Path("/proc/cpuinfo")
    return path.read_text(errors="replace") if path.exists() else ""


def _cpu(cpuinfo: str) -> dict[str, Any]:
    first = cpuinfo.split("\n\n")[0]  # one paragraph per core
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}
    flags = set((fields.get("flags") or fields.get("Features") or "").split())
    machine = platform.machine()
    return {
        "model": fields.get("model name") or platform.processor() or "unknown",
        "architecture": machine,
        "level": x86_level(flags) if machine.lower() in ("x86_64", "amd64") else None,
        "features": sorted(flags & _NOTEWORTHY),
        "torch_capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
    }


def x86_level(flags: set[str]) -> str | None:
    """The highest x86-64 level whose every instruction set is in `flags`; None if there are no flags to read."""
    if not flags:
        return None
    level = "x86-64-v1"
    for name, needed in _X86_LEVELS.items():
        if not needed <= flags:
            break
        level = name
    return level


# --- GPUs and backends ------------------------------------------------------------------------------------------------


def _gpus() -> tuple[list[dict[str, Any]], str | None]:
    """The accelerators torch sees; if none, why."""
    with warnings.catch_warnings(record=True) as caught:  # torch warns when a driver is there but does not fit
        warnings.simplefilter("always")
        accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is not None:
        return [_gpu(accelerator.type, i) for i in range(torch.accelerator.device_count())], None
    if caught:
        return [], str(caught[0].message).split("\n")[0]
    built_for = [f"{name} {version}" for name, version in _GPU_BUILDS.items() if version]
    return [], f"torch is built for {built_for[0]} and finds no device" if built_for else "torch is built for CPU only"


def no_gpu_because(kind: str) -> str | None:
    """Why torch has no device of this kind, such as "cuda", or None if it has."""
    gpus, reason = _gpus()
    found = [gpu["name"] for gpu in gpus if gpu["device"].startswith(f"{kind}:")]
    return None if found else reason or f"there is no {kind} device here, only {gpus[0]['device']} {gpus[0]['name']}"


def _gpu(kind: str, index: int) -> dict[str, Any]:
    name_of = getattr(torch.get_device_module(kind), "get_device_name", None)  # mps has no such function
    return {"device": f"{kind}:{index}", "name": name_of(index) if name_of else kind}


def _auto(device: str, rule: Discretization) -> str:
    """The backend that "auto" takes for this rule on this device, by asking the code that takes it."""
    with warnings.catch_warnings(action="ignore"):  # that a fast backend is missing is what the table says
        return str(choose("selective_scan", "auto", torch.device(device), rule))


# --- for people -------------------------------------------------------------------------------------------------------


def render(facts: dict[str, Any]) -> list[Any]:
    """The facts of `collect` as text and tables for rich."""
    from rich import box
    from rich.table import Table

    machine = Table.grid(padding=(0, 2))
    machine.add_column(style="bold", no_wrap=True)
    machine.add_column()
    for name, value in _machine_rows(facts):
        machine.add_row(name, value)

    backends = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    backends.add_column("backend", style="bold", no_wrap=True)
    backends.add_column("here", no_wrap=True)
    backends.add_column("what it is, or why it is missing")
    for backend in facts["backends"]:
        reason = backend["missing_because"]
        backends.add_row(backend["name"], "no" if reason else "yes", reason or backend["description"])

    picks = [f"auto picks on {device}: {_picks(chosen)}" for device, chosen in facts["auto"].items()]
    return [machine, "", backends, "", *picks]


def _machine_rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    cpu = facts["cpu"]
    features = f" with {', '.join(cpu['features'])}" if cpu["features"] else ""
    usable = "" if cpu["usable_cores"] == cpu["cores"] else f", {cpu['usable_cores']} of them for this process"
    gpus = [f"{gpu['device']} {gpu['name']}" for gpu in facts["gpus"]] or [f"none: {facts['no_gpu_because']}"]
    return [
        *facts["versions"].items(),
        ("platform", facts["platform"]),
        ("processor", cpu["model"]),
        ("instructions", f"{cpu['level'] or cpu['architecture']}{features}; torch uses {cpu['torch_capability']}"),
        ("cores", f"{cpu['cores']}{usable}; threads that torch uses: {cpu['torch_threads']}"),
        *(("GPU", gpu) for gpu in gpus),
    ]


def _picks(chosen: dict[str, str]) -> str:
    """One name if every rule runs on it; otherwise each backend with its rules."""
    rules: dict[str, list[str]] = {}
    for rule, backend in chosen.items():
        rules.setdefault(backend, []).append(rule)
    if len(rules) == 1:
        return next(iter(rules))
    return "; ".join(f"{backend} for {', '.join(names)}" for backend, names in rules.items())
