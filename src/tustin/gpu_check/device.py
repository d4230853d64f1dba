"""The device that is checked, and in one sentence why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch

from ..doctor import no_gpu_because
from ..ops.accelerator import interpreted, triton_missing
from ..ops.scan import selective_scan
from ..support.devices import GPUS
from .outcome import sentence

OLDEST = (7, 0)
"""The compute capability of the oldest GPUs of NVIDIA that Triton compiles for."""


@dataclass(frozen=True)
class Device:
    """A GPU, or the CPU with Triton's interpreter instead of a GPU."""

    device: torch.device
    name: str
    target: str | None
    """The compiler's name of the GPU, such as sm_90 or gfx942."""
    properties: Any = None

    @property
    def is_gpu(self) -> bool:
        return self.device.type in GPUS

    @property
    def module(self) -> Any:
        """PyTorch's module for devices of this type, such as torch.cuda."""
        return torch.get_device_module(self.device)

    def synchronize(self) -> None:
        """Wait until the device has finished all work."""
        if self.is_gpu:
            self.module.synchronize(self.device)

    def forget(self) -> None:
        """Free unused memory, so that the next check can use it."""
        if self.is_gpu:
            self.module.empty_cache()

    def facts(self) -> dict[str, Any]:
        """Name, memory and clock rates, for the file of results."""
        wanted = ("total_memory", "multi_processor_count", "clock_rate", "memory_clock_rate", "memory_bus_width")
        known = {name: getattr(self.properties, name, None) for name in wanted} if self.properties else {}
        return {"device": str(self.device), "name": self.name, "target": self.target, **known}


def find(name: str | None) -> Device:
    """The device with this name, or the first GPU. If it cannot be checked, a RuntimeError says why in one sentence."""
    if reason := triton_missing():
        raise RuntimeError(reason)
    try:
        triton = import_module("triton")
    except Exception as error:
        raise RuntimeError(f"Triton is installed but broken, it cannot be imported: {sentence(error)}") from error
    found = _cpu() if name == "cpu" else _gpu(name)
    try:
        _launch(found)
    except torch.OutOfMemoryError as error:
        raise RuntimeError(
            f"{found.name} has too little free memory even for the smallest scan: {sentence(error)}"
        ) from error
    except Exception as error:
        version = f"Triton {triton.__version__}"
        raise RuntimeError(f"{version} is broken, it cannot run a kernel on {found.name}: {sentence(error)}") from error
    return found


def _cpu() -> Device:
    if not interpreted():
        raise RuntimeError("the CPU can be checked only with Triton's interpreter: set TRITON_INTERPRET=1")
    return Device(torch.device("cpu"), "CPU, by Triton's interpreter", None)


def _gpu(name: str | None) -> Device:
    device = _named(name)
    if reason := no_gpu_because(device.type):
        raise RuntimeError(f"there is no GPU to check: {reason}")
    if interpreted():
        raise RuntimeError(
            "TRITON_INTERPRET=1 is set, so Triton interprets the kernels and does not use the GPU: unset it"
        )
    module = torch.get_device_module(device)
    if (device.index or 0) >= module.device_count():
        raise RuntimeError(f"there is no {device}: this machine has {module.device_count()} such devices")
    properties = module.get_device_properties(device)
    if device.type != "cuda":
        return Device(device, properties.name, None, properties)
    if torch.version.hip:
        return Device(device, properties.name, properties.gcnArchName.partition(":")[0], properties)
    capability = (properties.major, properties.minor)
    if capability < OLDEST:
        has, needs = (".".join(map(str, version)) for version in (capability, OLDEST))
        raise RuntimeError(f"{properties.name} has compute capability {has}, and Triton needs at least {needs}")
    return Device(device, properties.name, f"sm_{properties.major}{properties.minor}", properties)


def _named(name: str | None) -> torch.device:
    if name is None:
        kind = next((kind for kind in GPUS if not no_gpu_because(kind)), GPUS[0])
        return torch.device(kind, 0)
    device = torch.device(name)
    return device if device.index is not None else torch.device(device.type, 0)


def _launch(found: Device) -> None:
    """One scan, of the fewest numbers."""
    x = torch.ones(1, 1, 2, device=found.device)
    a = -torch.ones(1, 1, device=found.device)
    selective_scan(x, x, a, a, a, discretization="bil", backend="triton")
    found.synchronize()
