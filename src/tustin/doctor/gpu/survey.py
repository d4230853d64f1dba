"""Every kernel compiled for every target, and what was found in it."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, TypeAlias

import triton

from ... import __version__
from ...report.terminal import Report
from ...support.processes import end_with_parent, usable_cores
from . import cases as vim_tiny
from . import kept
from .cases import Case
from .compile import compile_for
from .inspect import Code, inspect
from .roofline import GPUS, estimate

WORTH_A_PROCESS = 4
"""Kernels to compile for which another process is worth starting: it takes seconds until it can begin."""
_What: TypeAlias = tuple[str, Case]


@dataclass(frozen=True)
class Found:
    """One kernel for one rule, dtype and target."""

    target: str
    case: Case
    code: Code

    @property
    def name(self) -> tuple[str, str, str | None]:
        """What tells it from all others of its dtype."""
        return self.target, self.case.kernel, self.case.discretization

    def per_update(self, kind: str | None = None) -> float | None:
        """Instructions of one lane per update of one state, that is per token and state; None if it has no tokens."""
        if not self.case.updates:
            return None
        once = 0 if self.case.passes else 1  # beside a loop over the tokens, what is done once does not count
        return self.code.executed(self.case.passes, kind, once) * self.code.threads / self.case.updates


def survey(
    targets: Sequence[str], cases: Sequence[Case], progress: Report, processes: int | None = None
) -> list[Found]:
    """Compile and look into all of them, but for what was kept from an earlier time.

    Args:
        targets: GPUs to compile for.
        cases: What to compile.
        progress: Told how far it is.
        processes: How many compile at once; as many as there are cores by default, and none beside this one for few.
    """
    wanted = [(target, case) for target in targets for case in cases]
    codes = {what: code for what in wanted if (code := kept.read(what[0], what[1].launch))}
    missing = [what for what in wanted if what not in codes]
    processes = min(processes or usable_cores(), len(missing) // WORTH_A_PROCESS)
    for what, code in _in_processes(missing, processes) if processes > 1 else _here(missing):
        codes[what] = code
        progress(f"compiling for {what[0]}", len(codes), len(wanted))
    return [Found(*what, codes[what]) for what in wanted]


def _here(missing: Sequence[_What]) -> Iterator[tuple[_What, Code]]:
    for what in missing:
        yield what, _compile(*what)


def _in_processes(missing: Sequence[_What], processes: int) -> Iterator[tuple[_What, Code]]:
    """As they come. A process is told the names, and makes the launch by itself: it cannot be sent."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=end_with_parent)
    try:
        waiting = {pool.submit(_compile_named, target, case.name): (target, case) for target, case in missing}
        for done in as_completed(waiting):
            try:
                yield waiting[done], done.result()
            except BrokenProcessPool as error:
                message = "a process that compiles was killed, as the system does when memory runs out"
                raise RuntimeError(message) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _compile_named(target: str, name: tuple[str, str | None, str]) -> Code:
    return _compile(target, vim_tiny.named(*name))


def _compile(target: str, case: Case) -> Code:
    try:
        code = inspect(compile_for(target, case.launch))
    except Exception as error:
        what = " ".join(filter(None, case.name))
        raise RuntimeError(f"{what} does not compile for {target}: {error}") from error
    kept.write(target, case.launch, code)
    return code


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
