"""Every kernel compiled for every target, and what was found in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import triton

from ... import __version__
from ...report.terminal import Report
from . import cases as vim_tiny
from .cases import Case
from .compile import compile_for
from .inspect import Code, inspect
from .roofline import GPUS, estimate


@dataclass(frozen=True)
class Found:
    """One kernel for one rule, dtype and target."""

    target: str
    case: Case
    code: Code

    def per_update(self, kind: str | None = None) -> float | None:
        """Instructions of one lane per update of one state, that is per token and state; None if it has no tokens."""
        if not self.case.updates:
            return None
        once = 0 if self.case.passes else 1  # beside a loop over the tokens, what is done once does not count
        return self.code.executed(self.case.passes, kind, once) * self.code.threads / self.case.updates


def survey(targets: Sequence[str], cases: Sequence[Case], progress: Report) -> list[Found]:
    """Compile and look into all of them. What Triton has in its cache is not compiled again."""
    found: list[Found] = []
    for target in targets:
        for case in cases:
            what = " ".join(filter(None, (case.kernel, case.discretization, case.dtype)))
            progress(f"compiling for {target}", len(found), len(targets) * len(cases))
            try:
                code = inspect(compile_for(target, case.launch))
            except Exception as error:
                raise RuntimeError(f"{what} does not compile for {target}: {error}") from error
            found.append(Found(target, case, code))
    return found


def as_facts(found: Sequence[Found]) -> dict[str, Any]:
    """All of it as plain data: what `--json` prints."""
    shape = {name: getattr(vim_tiny, name) for name in ("D", "N", "L", "K")}
    return {
        "tustin": __version__,
        "triton": triton.__version__,
        "shape": shape,
        "kernels": [_facts(one, found) for one in found],
    }


def relative_to_zoh(one: Found, found: Sequence[Found]) -> float | None:
    """Its instructions per token and state by those of `zoh` in the same kernel, dtype and target."""
    same = (one.target, one.case.kernel, "zoh", one.case.dtype)
    zoh = next((f for f in found if (f.target, f.case.kernel, f.case.discretization, f.case.dtype) == same), None)
    own, other = one.per_update(), zoh.per_update() if zoh else None
    return own / other if own and other and one.case.discretization else None


def _facts(one: Found, found: Sequence[Found]) -> dict[str, Any]:
    case, code = one.case, one.code
    facts: dict[str, Any] = {
        "target": one.target,
        "kernel": case.kernel,
        "discretization": case.discretization,
        "dtype": case.dtype,
        "grid": list(case.launch.grid),
        "threads": code.threads,
        "registers": code.registers,
        "spills": code.spills,
        "shared_bytes": code.shared,
        "instructions": code.count(),
        "instructions_in_loops": sum(instruction.loop is not None for instruction in code.instructions),
        "mix": code.mix(),
        "per_token_and_state": {
            "instructions": one.per_update(),
            "global_loads": one.per_update("global load"),
            "global_stores": one.per_update("global store"),
        },
        "instructions_relative_to_zoh": relative_to_zoh(one, found),
        "bytes": case.launch.bytes,
        "estimate": None,
    }
    if gpu := GPUS.get(one.target):
        least = estimate(gpu, case, code)
        facts["estimate"] = {
            "gpu": gpu.name,
            "memory_seconds": least.memory,
            "issue_seconds": least.issue,
            "units_seconds": least.units,
            "limit": least.limit,
        }
    return facts
