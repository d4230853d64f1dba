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
from ..support.processes import usable_cores

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
        "usable_cores": usable_cores(),
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
