"""How whole models are measured: memory first, one candidate a process; then times, those of one size together."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from ..discretize import DISCRETIZATIONS
from ..ops.dispatch import choose
from ..report.measurement import Case, Options, Result
from ..report.speed import Candidate, ModelCase
from ..report.terminal import Report
from . import machine, memory
from .measure import Plan, Process, Processes, measure, of_same_work, side_by_side
from .worker import Worker

KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": "4000000000", "MALLOC_MMAP_THRESHOLD_": "33554432"}
"""Of the processes that are timed. glibc would give freed memory back to the system, and every tensor would start with
page faults."""

PROCESSES = 2
MOST_ROUNDS, FEWEST_ROUNDS = 24, 10
"""With fewer than ten nothing could be claimed of six rules."""
TURN = 0.2
"""Seconds for a candidate in a round; where calls are quick, the candidates are called lap by lap for this long."""
BUDGET = 520.0
"""Seconds for everything, where the number of rounds is not given."""


def run(
    name: str, command: str, options: Options, cases: Sequence[ModelCase], profiled: ModelCase, report: Report
) -> Result:
    """Memory and times of all that fits, and what a call of one case consists of."""
    facts = machine.describe(options.device, "timm") | {"backends": backends(options), "environment": KEEP_MEMORY}
    start = time.monotonic()
    peaks = measure_peaks(cases, report)
    fitting = [case for case in cases if replace(case, candidate=_plain(case.candidate)) not in peaks.skipped]
    process = Process("models", tuple(KEEP_MEMORY.items()))

    def rounds(expected: Mapping[Case, float]) -> int:
        again = (PROCESSES - 1) * sum(expected.values())  # a worker calls what it does not know once untimed
        return options.rounds or rounds_within(BUDGET - (time.monotonic() - start) - again, expected)

    plan = Plan(
        cases=fitting,
        process=lambda case: process,
        rounds=rounds,
        parties=side_by_side(process, TURN),
        once=lambda case, seconds: isinstance(case, ModelCase) and case.candidate.backend == "reference",
        processes=PROCESSES,
    )
    found = measure(plan, report)
    shares = {}
    if profiled in found.timings:
        report("where the time goes", 0, 1)
        with Processes() as processes:
            shares[str(profiled)] = processes[process].shares(profiled)
    skipped = peaks.skipped | found.skipped
    return found.result(name, command, options, facts, peaks=peaks.known, skipped=skipped, notes={"shares": shares})


def backends(options: Options) -> dict[str, str]:
    """The backend that computes each rule on this machine."""
    device = torch.device(options.device)
    return {
        name: str(choose("selective_scan", "auto", device, DISCRETIZATIONS[name])) for name in options.discretizations
    }


def rounds_within(left: float, expected: Mapping[Case, float]) -> int:
    """As many as fit, an even number of them."""
    groups = of_same_work(expected)
    seconds = sum(max(TURN * len(group), sum(expected[case] for case in group)) for group in groups)
    return max(FEWEST_ROUNDS, min(MOST_ROUNDS, int(left / seconds) // 2 * 2)) if seconds else FEWEST_ROUNDS


# --- memory -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Peaks:
    """Bytes beside the weights, and what would not fit."""

    known: dict[Case, int]
    skipped: dict[Case, str]


def measure_peaks(cases: Sequence[ModelCase], report: Report) -> Peaks:
    """The memory of every candidate, from the smallest case on, until one would not fit."""
    candidates = [c for c in dict.fromkeys(case.candidate for case in cases) if c == _plain(c)]
    found = Peaks({}, {})
    waiting = [Worker(memory.ENVIRONMENT)]
    try:
        for done, candidate in enumerate(candidates):
            report(f"memory, {candidate.name}", done, len(candidates))
            if done + 1 < len(candidates):
                waiting.append(Worker(memory.ENVIRONMENT))  # for the next one, which starts in the meantime
            own = sorted((case for case in cases if case.candidate == candidate), key=lambda case: case.pixels)
            for place, case in enumerate(own):
                known = {other: found.known[other] for other in own[:place] if other in found.known}
                if reason := memory.too_large(case, known) or _measure_peak(case, waiting[0], found):
                    found.skipped.update(dict.fromkeys(own[place:], reason))
                    break
            waiting.pop(0).close()
    finally:
        for worker in waiting:
            worker.close()
    return found


def _measure_peak(case: ModelCase, worker: Worker, found: Peaks) -> str | None:
    """Note the peak; or why there is none, if the memory was not enough."""
    try:
        peak = worker.peak(case)
    except RuntimeError as error:
        if not any(sign in str(error) for sign in _OUT_OF_MEMORY):
            raise
        return f"the memory was not enough: {' '.join(str(error).split())[:150]}"
    if peak is not None:
        found.known[case] = peak
    return None


_OUT_OF_MEMORY = ("OutOfMemoryError", "can't allocate memory", "ended with code -9")


def _plain(candidate: Candidate) -> Candidate:
    """The one whose memory is measured, and tells for how many images there is room."""
    return Candidate(candidate.model, candidate.discretization)
