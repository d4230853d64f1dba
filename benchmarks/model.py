"""Vision Mamba beside DeiT on this CPU: inference, a large image, a training step; times in turns, ratios, verdicts.

    python benchmarks/model.py [--threads 2] [--rounds 7] [--json FILE]

Both models are tiny ones with 16 x 16 patches, in float32; their weights are random, which does not change the times.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from tustin.bench import machine, memory, models, progress, timing
from tustin.bench.checks import Check, worst
from tustin.bench.models import Candidate, Case
from tustin.bench.pairing import Ratio
from tustin.bench.report import CHECK_COLUMNS, check_texts
from tustin.bench.timing import Party, Timing, ratio
from tustin.bench.worker import Worker
from tustin.support.files import write_text

OURS, PEER = "vim_tiny_patch16_224", "deit_tiny_patch16_224"
LARGE = 1248  # 6084 patches


VIM, DEIT = Candidate(OURS, "bil"), Candidate(PEER, None)

SLOW = Case(Candidate(OURS, "bil", backend="reference"), 8, 224)
CASES = (
    Case(VIM, 8, 224),
    Case(DEIT, 8, 224),
    SLOW,
    Case(VIM, 1, LARGE),
    Case(DEIT, 1, LARGE),
    Case(VIM, 8, 224, training=True),
    Case(DEIT, 8, 224, training=True),
)


def name(case: Case) -> str:
    return f"{case}, training step" if case.training else str(case)


def time_all(rounds: int, report: Callable[[str, int, int], None]) -> dict[Case, Timing]:
    """Seconds per call of every case; the reference backend, which takes long, in one round only."""
    calls: dict[Case, Callable[[], object]] = {}
    for done, case in enumerate(CASES):
        report(f"first calls, {name(case)}", done, len(CASES))
        calls[case] = models.make_call(case)
        if case != SLOW:
            calls[case]()

    def party(members: list[Case], turns: int) -> Party[Case]:
        order = range(len(members))
        return Party(
            members, lambda _: timing.in_laps(lambda i: timing.time_once(calls[members[i]]), [order], 0.0), turns
        )

    parties = [party([case for case in CASES if case != SLOW], rounds), party([SLOW], 1)]
    times = timing.in_turns(parties, rounds, 0.0, lambda number: report("timing", number + 1, rounds))
    return {case: times[case] for case in CASES}


def peak_bytes(case: Case, threads: int) -> int:
    """What one call needs beside the weights, in a fresh process."""
    worker = Worker(memory.ENVIRONMENT)
    try:
        peak = worker.peak(replace(case, threads=threads))
    finally:
        worker.close()
    if peak is None:
        raise RuntimeError("this system does not tell how much memory a process has used")
    return peak


def shares(case: Case) -> dict[str, float]:
    """The operations that take most of a call, each with its share of the time."""
    call = models.make_call(case)
    call()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call()
    own = {event.key: event.self_cpu_time_total for event in profile.key_averages()}
    total = sum(own.values())
    groups: dict[str, float] = {}
    for name, time in own.items():
        groups[_group(name)] = groups.get(_group(name), 0.0) + time / total
    return dict(sorted(groups.items(), key=lambda item: -item[1]))


def _group(operation: str) -> str:
    name = operation.lower()
    for part, group in (
        ("selective", "scan"),
        ("causal_co", "short convolution"),
        ("mm", "matrix products"),
        ("convolution", "patch embedding"),
        ("norm", "norm"),
        ("gated", "gate"),
    ):
        if part in name:
            return group
    return "everything else"


def checks(times: dict[Case, Timing], peaks: dict[Case, int]) -> list[Check]:
    ours, peer, slow, ours_large, peer_large, ours_step, peer_step = (times[case] for case in CASES)
    grown = Ratio((peaks[CASES[3]] / peaks[CASES[4]],))
    return [
        worst(claim, relation, bound, {"bil": measured})
        for claim, relation, bound, measured in (
            ("inference at 224, batch 8: ViM : DeiT", "≤", 1.3, ratio(ours, peer)),
            ("inference at 224, batch 8: reference backend : native", "≥", 30, ratio(slow, ours)),
            (f"inference at {LARGE}, batch 1: DeiT : ViM", "≥", 2.8, ratio(peer_large, ours_large)),
            (f"peak memory at {LARGE}, batch 1: ViM : DeiT", "≤", 1.0, grown),
            ("training step at 224, batch 8: ViM : DeiT", "≤", 1.6, ratio(ours_step, peer_step)),
        )
    ]


def show(
    times: dict[Case, Timing], peaks: dict[Case, int], parts: dict[str, dict[str, float]], verdicts: list[Check]
) -> None:
    console = Console()
    table = Table("case", "ms", "spread", "growth of memory", title="Time per call (median), and its spread")
    for case, t in times.items():
        grown = f"{peaks[case] / 2**20:.0f} MiB" if case in peaks else ""
        table.add_row(name(case), f"{t.median * 1e3:.0f}", f"±{t.spread:.0%}" if t.calls > 1 else "one call", grown)
    console.print(table)
    table = Table("", *parts, title="Where the time goes, ViM-tiny bil at 224, batch 8")
    for group in dict.fromkeys(group for share in parts.values() for group in share):
        table.add_row(group, *(f"{share.get(group, 0.0):.0%}" for share in parts.values()))
    console.print(table)
    table = Table("claim (ratio)", *CHECK_COLUMNS, title="Checks")
    for check in verdicts:
        table.add_row(check.claim, *check_texts(check))
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="default: as many as torch uses")
    parser.add_argument("--rounds", type=int, default=7, help="default: 7")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything as JSON")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    with progress.shown() as report:
        times = time_all(args.rounds, report)
        large = [case for case in CASES if case.img_size == LARGE]
        peaks = {}
        for i, case in enumerate(large):
            report(f"memory, {name(case)}", i, len(large))
            peaks[case] = peak_bytes(case, args.threads)
        parts = {"inference": shares(CASES[0]), "training step": shares(CASES[5])}
    verdicts = checks(times, peaks)
    show(times, peaks, parts, verdicts)
    if args.json:
        result = {
            "machine": machine.describe("cpu", "timm"),
            "threads": args.threads,
            "cases": [asdict(case) | {"seconds": t.told(), "bytes": peaks.get(case)} for case, t in times.items()],
            "shares": parts,
            "checks": [check.told() for check in verdicts],
        }
        write_text(args.json, json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":  # the memory is measured in processes that import this file
    sys.exit(main())
