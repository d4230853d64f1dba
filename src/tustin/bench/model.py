"""Vision Mamba beside DeiT: inference, a large image, a training step; times in turns, memory, and where time goes.

Both models are tiny ones with 16 x 16 patches, in float32; their weights are random, which does not change the times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..report.measurement import Case, Options, Result
from ..report.speed import Candidate, ModelCase
from ..report.table import NOTHING, Table
from ..report.terminal import Report
from ..report.timing import Ratio, lap_ratio
from . import machine
from .checks import Check, checks_table, worst
from .measure import Party, Plan, Process, Processes, measure
from .memory import memory_text
from .model_plan import measure_peaks
from .models import PEERS
from .outcome import Outcome, left_out

MODEL, LARGE = "vim_tiny_patch16_224", 1248  # 6084 patches
_VIM, _DEIT = Candidate(MODEL, "bil"), Candidate(PEERS[MODEL], None)
OURS, PEER = ModelCase(_VIM, 8, 224), ModelCase(_DEIT, 8, 224)
SLOW = ModelCase(replace(_VIM, backend="reference"), 8, 224)
OURS_LARGE, PEER_LARGE = ModelCase(_VIM, 1, LARGE), ModelCase(_DEIT, 1, LARGE)
OURS_STEP, PEER_STEP = ModelCase(_VIM, 8, 224, True), ModelCase(_DEIT, 8, 224, True)
CASES = (OURS, PEER, SLOW, OURS_LARGE, PEER_LARGE, OURS_STEP, PEER_STEP)


def run(options: Options, command: str, report: Report) -> Result:
    """Times of every case, the memory of the large ones, and what a call of ours consists of."""
    facts = machine.describe("cpu", "timm")
    cases = [_on(case, options) for case in CASES]
    process = Process("models")

    def parties(expected: Mapping[Case, float], rounds: int) -> list[Party]:
        return [Party(tuple(expected), process, rounds, seconds=0.0)]

    plan = Plan(
        cases=cases,
        process=lambda case: process,
        rounds=lambda expected: options.rounds or 7,
        parties=parties,
        once=lambda case: case == _on(SLOW, options),
    )
    found = measure(plan, report)
    peaks = measure_peaks([case for case in cases if case.img_size == LARGE], report)
    with Processes() as processes:
        shares = {
            name: processes[process].shares(_on(case, options))
            for name, case in (("inference", OURS), ("training step", OURS_STEP))
        }
    skipped = found.skipped | peaks.skipped
    return found.result("model", command, options, facts, peaks=peaks.known, skipped=skipped, notes={"shares": shares})


def _on(case: ModelCase, options: Options) -> ModelCase:
    return replace(case, threads=options.threads)


def outcome(result: Result) -> Outcome:
    """The result in all its forms."""
    verdicts = checks(result)
    shares = shares_table(result, f"Where the time goes, {MODEL} with bil at 224, batch 8")
    return Outcome(
        result=result,
        summary=f"{result.where} float32; {result.rounds} round{'s'[: result.rounds > 1]} in turns{result.busy}.",
        tables=[_times(result), shares, checks_table(verdicts)],
        left_out=left_out(result),
        findings={"checks": [check.facts() for check in verdicts]},
    )


def checks(result: Result) -> list[Check]:
    """What is promised about Vision Mamba beside DeiT."""

    def times(own: ModelCase, other: ModelCase) -> Ratio | None:
        mine, theirs = (result.timings.get(_on(case, result.options)) for case in (own, other))
        return lap_ratio(mine, theirs) if mine and theirs else None

    ours, peer = (result.peaks.get(_on(case, result.options)) for case in (OURS_LARGE, PEER_LARGE))
    return [
        worst(claim, relation, bound, {"bil": measured} if measured else {})
        for claim, relation, bound, measured in (
            ("inference at 224, batch 8: ViM : DeiT", "≤", 1.3, times(OURS, PEER)),
            ("inference at 224, batch 8: reference backend : native", "≥", 30, times(SLOW, OURS)),
            (f"inference at {LARGE}, batch 1: DeiT : ViM", "≥", 2.8, times(PEER_LARGE, OURS_LARGE)),
            (
                f"peak memory at {LARGE}, batch 1: ViM : DeiT",
                "≤",
                1.0,
                Ratio((ours / peer,)) if ours and peer else None,
            ),
            ("training step at 224, batch 8: ViM : DeiT", "≤", 1.6, times(OURS_STEP, PEER_STEP)),
        )
    ]


def _times(result: Result) -> Table:
    rows = []
    for case, timing in result.timings.items():
        spread = f"±{timing.spread:.0%}" if len(timing.seconds) > 1 else "one call"
        rows.append((str(case), f"{timing.median * 1e3:.0f}", spread, memory_text(result.peaks.get(case))))
    header = ("case", "ms", "spread", "memory (MiB)")
    return Table("times", "Time per call (median), and its spread", header, rows, "Memory: beside weights and images.")


def shares_table(result: Result, title: str) -> Table:
    """What the calls in the notes of a result consist of."""
    shares = result.notes["shares"]
    groups = dict.fromkeys(group for share in shares.values() for group in share)
    rows = [
        (group, *(f"{share[group]:.0%}" if group in share else NOTHING for share in shares.values()))
        for group in groups
    ]
    return Table("shares", title, ("", *shares), rows, "By the profiler, in one call.")
