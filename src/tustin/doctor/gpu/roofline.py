"""An estimate of how long a launch takes at least, from its bytes and its instructions. Nothing here was measured.

A launch cannot be faster than memory moves its bytes, than its instructions are issued, or than the units that execute
them allow. What it leaves out makes a real launch slower: waiting for memory and for results, and starting it at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .cases import Case
from .inspect import Code


@dataclass(frozen=True)
class GPU:
    """What its data sheet says."""

    name: str
    bytes_per_second: float
    clock: float
    """Cycles per second, boosted."""
    processors: int
    lanes: dict[str, int]
    """Threads for which a processor executes an instruction of each kind in a cycle."""


SCHEDULERS = 4  # of a processor: each issues one instruction of one warp in a cycle
_WARP = 32
GPUS = {
    "sm_80": GPU("A100 80 GB", 2.039e12, 1.41e9, 108, {"float": 64, "integer": 64, "special": 16, "memory": 32}),
    "sm_90": GPU("H100 SXM", 3.35e12, 1.98e9, 132, {"float": 128, "integer": 64, "special": 16, "memory": 32}),
}
_UNITS = {
    "float": ("float",),
    "integer": ("integer",),
    "special": ("special",),
    "memory": ("global load", "global store", "shared", "spill", "exchange"),
}


_FLOAT_LANES = {"sm_70": 64, "sm_75": 64, "sm_80": 64, "sm_86": 128, "sm_87": 128, "sm_89": 128}
"""Of the processors of NVIDIA's GPUs before sm_90; of all since then 128."""


def described(target: str, name: str, properties: Any) -> GPU | None:
    """The GPU at hand: by its data sheet where it is above, otherwise as its driver describes it; None if it does not.

    Memory moves twice in a cycle of its clock, which is told in kHz.
    """
    sheet = GPUS.get(target)
    if sheet and sheet.name.split()[0] in name and sheet.processors == properties.multi_processor_count:
        return sheet
    told = [getattr(properties, what, 0) for what in ("clock_rate", "memory_clock_rate", "memory_bus_width")]
    if not target.startswith("sm_") or not all(told):
        return None
    clock, memory_clock, width = told
    lanes = {"float": _FLOAT_LANES.get(target, 128), "integer": 64, "special": 16, "memory": 32}
    return GPU(name, 2 * memory_clock * 1e3 * width / 8, clock * 1e3, properties.multi_processor_count, lanes)


@dataclass(frozen=True)
class Estimate:
    """The least time of a launch, in seconds, by what limits it."""

    memory: float
    issue: float
    units: float

    @property
    def seconds(self) -> float:
        return max(self.memory, self.issue, self.units)

    @property
    def limit(self) -> str:
        """What takes longest."""
        return max(("memory", "issue", "units"), key=lambda name: float(getattr(self, name)))


def estimate(gpu: GPU, case: Case, code: Code) -> Estimate:
    """The least time of one launch of the case's kernel on the GPU."""
    warps = case.launch.programs * code.threads // _WARP
    turns = -(-warps // (gpu.processors * SCHEDULERS))  # warps that share a scheduler
    executed = {kind: code.executed(case.passes, kind) for kind in code.mix()}
    threads = warps * _WARP
    units = (
        sum(executed.get(kind, 0) for kind in kinds) * threads / (gpu.lanes[unit] * gpu.processors * gpu.clock)
        for unit, kinds in _UNITS.items()
    )
    return Estimate(
        memory=case.launch.bytes / gpu.bytes_per_second,
        issue=turns * sum(executed.values()) / gpu.clock,
        units=max(units),
    )
