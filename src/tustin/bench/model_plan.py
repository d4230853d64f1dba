"""How whole models are measured: memory first, one candidate a process; then times, those of one size together."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace

import torch

from ..discretize import DISCRETIZATIONS
from ..ops.dispatch import choose
from ..report.measurement import Case, Options, Result
from ..report.speed import Candidate, ModelCase
from ..report.terminal import Report
from . import machine, memory
from .measure import Plan, Process, Processes, measure, of_same_work, profile, side_by_side

KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": "4000000000", "MALLOC_MMAP_THRESHOLD_": "33554432"}
"""Of the processes that are timed. glibc would give freed memory back to the system, and every tensor would start with
page faults."""

MODELS = Process("models", tuple(KEEP_MEMORY.items()))

PROCESSES = 2
MOST_ROUNDS, FEWEST_ROUNDS = 24, 10
"""With fewer than ten nothing could be claimed of six rules."""
_OUT_OF_MEMORY = ("OutOfMemoryError", "can't allocate memory", "ended with code -9")
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
    peaks, too_large = measure_peaks(cases, report)
    fitting = [case for case in cases if replace(case, candidate=_plain(case.candidate)) not in too_large]

    def fit(expected: Mapping[Case, float]) -> int:
        again = (PROCESSES - 1) * sum(expected.values())  # a worker calls what it does not know once untimed
        return rounds_within(BUDGET - (time.monotonic() - start) - again, expected)

    plan = Plan(
        cases=fitting,
        process=lambda case: MODELS,
        rounds=options.rounds,
        parties=side_by_side(TURN),
        fit=fit,
        once=lambda case, seconds: isinstance(case, ModelCase) and case.candidate.backend == "reference",
        processes=PROCESSES,
    )
    found = measure(plan, report)
    shares = profile(plan, [profiled] if profiled in found.timings else [], report)
    notes = {"shares": {str(case): share for case, share in shares.items()}}
    return found.result(name, command, options, facts, peaks=peaks, skipped=too_large | found.skipped, notes=notes)


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


def measure_peaks(cases: Sequence[ModelCase], report: Report) -> tuple[dict[Case, int], dict[Case, str]]:
    """Bytes beside the weights of every candidate, from the smallest case on; and why the rest would not fit."""
    peaks: dict[Case, int] = {}
    skipped: dict[Case, str] = {}
    candidates = [c for c in dict.fromkeys(case.candidate for case in cases) if c == _plain(c)]
    alone = [Process(f"memory, {candidate.name}", tuple(memory.ENVIRONMENT.items())) for candidate in candidates]
    with closing(Processes()) as processes:
        for done, (candidate, process) in enumerate(zip(candidates, alone, strict=True)):
            report(process.name, done, len(candidates))
            worker = processes[process]
            for following in alone[done + 1 : done + 2]:
                processes[following]  # starts in the meantime
            own = sorted((case for case in cases if case.candidate == candidate), key=lambda case: case.pixels)
            for place, case in enumerate(own):
                reason = memory.too_large(case, {other: peaks[other] for other in own[:place] if other in peaks})
                try:
                    peak = None if reason else worker.ask(memory.growth, case)
                except RuntimeError as error:
                    if not any(sign in str(error) for sign in _OUT_OF_MEMORY):
                        raise
                    reason = f"the memory was not enough: {' '.join(str(error).split())[:150]}"
                if reason:
                    skipped |= dict.fromkeys(own[place:], reason)
                    break
                if peak is not None:
                    peaks[case] = peak
            processes.pop(process).close()
    return peaks, skipped


def _plain(candidate: Candidate) -> Candidate:
    """The one whose memory is measured, and tells for how many images there is room."""
    return Candidate(candidate.model, candidate.discretization)
