"""Vision Mamba beside DeiT on this CPU: inference, a large image, a training step; times in turns, ratios, verdicts.

    python benchmarks/model.py [--threads 2] [--rounds 7] [--json FILE]

Both models are tiny ones with 16 x 16 patches, in float32; their weights are random, which does not change the times.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import timm
import torch
from rich.console import Console
from rich.table import Table

from tustin.bench import machine, progress, timing
from tustin.bench.checks import Check
from tustin.bench.timing import Task, Timing
from tustin.files import write_text

OURS, PEER = "vim_tiny_patch16_224", "deit_tiny_patch16_224"
LARGE = 1248  # 6084 patches


@dataclass(frozen=True)
class Case:
    """Something that is timed."""

    name: str
    model: str
    img_size: int = 224
    batch: int = 8
    training: bool = False
    backend: str = "auto"

    def call(self) -> Callable[[], object]:
        torch.manual_seed(0)
        ours = {"discretization": "bil", "backend": self.backend} if self.model == OURS else {}
        model = timm.create_model(self.model, img_size=self.img_size, **ours).train(self.training)
        images = torch.randn(self.batch, 3, self.img_size, self.img_size)

        def infer() -> object:
            with torch.inference_mode():
                return model(images)

        def step() -> object:
            model.zero_grad(set_to_none=True)
            model(images).logsumexp(-1).sum().backward()
            return None

        return step if self.training else infer


CASES = (
    Case("ViM-tiny bil, 224, batch 8", OURS),
    Case("DeiT-tiny, 224, batch 8", PEER),
    Case("ViM-tiny bil, 224, batch 8, reference backend", OURS, backend="reference"),
    Case(f"ViM-tiny bil, {LARGE}, batch 1", OURS, LARGE, 1),
    Case(f"DeiT-tiny, {LARGE}, batch 1", PEER, LARGE, 1),
    Case("ViM-tiny bil, 224, batch 8, training step", OURS, training=True),
    Case("DeiT-tiny, 224, batch 8, training step", PEER, training=True),
)


def time_all(rounds: int, report: Callable[[str, int, int], None]) -> dict[Case, Timing]:
    """Seconds per call of every case; the reference backend, which takes long, in one round only."""
    tasks: dict[Case, Task] = {}
    for done, case in enumerate(CASES):
        report(f"first calls, {case.name}", done, len(CASES))
        call = case.call()
        slow = case.backend == "reference"
        if not slow:
            call()
        tasks[case] = Task(
            turn=lambda at_least, call=call: timing.call_for(call, at_least, warm_up=False), turns=1 if slow else rounds
        )
    done, total = 0, sum(task.turns for task in tasks.values())

    def tick(_: int) -> None:
        nonlocal done
        done += 1
        report("timing", done, total)

    timing.in_turns(list(tasks.values()), rounds, 0.0, tick)
    return {case: timing.summarize(task.seconds) for case, task in tasks.items()}


def peak_bytes(case: Case, threads: int) -> int:
    """By how much the memory of a fresh process grows while the case runs once."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak_bytes, (case, threads))


def _peak_bytes(case: Case, threads: int) -> int:
    torch.set_num_threads(threads)
    Case("warm-up", case.model, 224, 1).call()()
    call = case.call()
    before = _highest_memory()
    call()
    return _highest_memory() - before


def _highest_memory() -> int:
    """Of this process; what getrusage calls so survives from the process that started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def shares(case: Case) -> dict[str, float]:
    """The operations that take most of a call, each with its share of the time."""
    call = case.call()
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
    ):
        if part in name:
            return group
    return "everything else"


def checks(times: dict[Case, Timing], memory: dict[Case, int]) -> list[Check]:
    ours, peer, slow, ours_large, peer_large, ours_step, peer_step = (times[case].median for case in CASES)
    return [
        Check(claim, relation, bound, round(ratio, 2), None)
        for claim, relation, bound, ratio in (
            ("inference at 224, batch 8: ViM : DeiT", "≤", 1.3, ours / peer),
            ("inference at 224, batch 8: reference backend : native", "≥", 30, slow / ours),
            (f"inference at {LARGE}, batch 1: DeiT : ViM", "≥", 2.8, peer_large / ours_large),
            (f"peak memory at {LARGE}, batch 1: ViM : DeiT", "≤", 1.0, memory[CASES[3]] / memory[CASES[4]]),
            ("training step at 224, batch 8: ViM : DeiT", "≤", 1.6, ours_step / peer_step),
        )
    ]


def show(
    times: dict[Case, Timing], memory: dict[Case, int], parts: dict[str, dict[str, float]], verdicts: list[Check]
) -> None:
    console = Console()
    table = Table("case", "ms", "spread", "growth of memory", title="Time per call (median), and its spread")
    for case, t in times.items():
        grown = f"{memory[case] / 2**20:.0f} MiB" if case in memory else ""
        table.add_row(case.name, f"{t.median * 1e3:.0f}", f"±{t.spread:.0%}" if t.calls > 1 else "one call", grown)
    console.print(table)
    table = Table("", *parts, title="Where the time goes, ViM-tiny bil at 224, batch 8")
    for group in dict.fromkeys(group for share in parts.values() for group in share):
        table.add_row(group, *(f"{share.get(group, 0.0):.0%}" for share in parts.values()))
    console.print(table)
    table = Table("claim (ratio)", "required", "measured", "holds", title="Checks")
    for check in verdicts:
        table.add_row(
            check.claim, f"{check.relation} {check.bound:g}", f"{check.measured:.2f}", "yes" if check.holds else "no"
        )
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
        memory = {}
        for i, case in enumerate(large):
            report(f"memory, {case.name}", i, len(large))
            memory[case] = peak_bytes(case, args.threads)
        parts = {"inference": shares(CASES[0]), "training step": shares(CASES[5])}
    verdicts = checks(times, memory)
    show(times, memory, parts, verdicts)
    if args.json:
        result = {
            "machine": machine.describe(),
            "threads": args.threads,
            "cases": [asdict(case) | {"seconds": asdict(t), "bytes": memory.get(case)} for case, t in times.items()],
            "shares": parts,
            "checks": [asdict(check) | {"holds": check.holds} for check in verdicts],
        }
        write_text(args.json, json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":  # the memory is measured in processes that import this file
    sys.exit(main())
