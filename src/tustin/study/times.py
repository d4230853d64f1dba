"""How long training took, compared in pairs: a busy machine must not look like a slow rule.

A pair is a rule and the baseline with the same seed. Their ratio is taken for each, and of the ratios the median with
an interval that assumes no distribution (`report.timing`). On a CPU the time of the processor decides, because runs
share it with each other and with other programs. On an accelerator it is the clock on the wall.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ..report.table import NOTHING, Table
from ..report.timing import SMALLEST_MARGIN, Ratio
from .results import Result
from .stats import CONFIDENCE, Analysis

__all__ = ["CLOCKS", "Cost", "CostVerdict", "Costs", "costs", "decided_by_cpu", "times_table"]

CLOCKS = {"cpu": "CPU time", "wall": "wall time"}
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


class CostVerdict(StrEnum):
    """Whether a rule takes longer than the baseline."""

    SLOWER = "slower"
    FASTER = "faster"
    UNDECIDED = "undecided"
    BASELINE = "baseline"


@dataclass(frozen=True)
class Cost:
    """What training with one rule takes, by one of two clocks."""

    seconds: float | None
    """The median over its runs."""
    ratio: Ratio | None
    """To the baseline, a value for each seed with which both finished; None for the baseline itself."""

    def facts(self) -> dict[str, Any]:
        return {"median_seconds": self.seconds, "to_baseline": self.ratio.facts() if self.ratio else None}


@dataclass(frozen=True)
class Costs:
    """Of one rule, by both clocks."""

    discretization: str
    cpu: Cost
    wall: Cost
    verdict: CostVerdict

    def facts(self) -> dict[str, Any]:
        """As plain data."""
        named = {"discretization": self.discretization, "verdict": str(self.verdict)}
        return {**named, "cpu": self.cpu.facts(), "wall": self.wall.facts()}


def costs(analysis: Analysis) -> list[Costs]:
    """Of every rule, in the order of the plan, and of the control."""
    plan = analysis.plan
    done = [result for result in analysis.study.results if result.status == "done"]
    cpu, wall = _by_rule(done, "cpu_seconds"), _by_rule(done, "train_seconds")
    decisive = cpu if decided_by_cpu(analysis) else wall
    rules = [discretization for discretization in plan.discretizations if discretization != plan.baseline]
    confidence = 1 - plan.level / max(1, len(rules))

    def told(discretization: str) -> Costs:
        verdict = CostVerdict.BASELINE
        if discretization != plan.baseline:
            verdict = _verdict(_cost(decisive, discretization, plan.baseline).ratio, confidence)
        by_cpu, by_wall = (_cost(clock, discretization, plan.baseline) for clock in (cpu, wall))
        return Costs(discretization, by_cpu, by_wall, verdict)

    return [told(method) for method in plan.methods]


def decided_by_cpu(analysis: Analysis) -> bool:
    """Whether the processor did the work, and every run says for how long."""
    done = [result for result in analysis.study.results if result.status == "done"]
    return all(result.cpu_seconds and result.environment.get("device", "cpu") == "cpu" for result in done)


def _by_rule(runs: Sequence[Result], name: str) -> dict[str, dict[int, float]]:
    """Seconds by rule and seed."""
    found: dict[str, dict[int, float]] = {}
    for run in runs:
        if seconds := getattr(run, name):
            found.setdefault(run.discretization, {})[run.seed] = seconds
    return found


def _cost(seconds: Mapping[str, Mapping[int, float]], discretization: str, baseline: str) -> Cost:
    own, base = seconds.get(discretization, {}), seconds.get(baseline, {})
    values = tuple(own[seed] / base[seed] for seed in own if seed in base)
    median = statistics.median(own.values()) if own else None
    return Cost(median, Ratio(values) if values and discretization != baseline else None)


def _verdict(ratio: Ratio | None, confidence: float) -> CostVerdict:
    if ratio is None or abs(ratio.median - 1) <= SMALLEST_MARGIN:
        return CostVerdict.UNDECIDED
    low, high = ratio.interval(confidence)
    return CostVerdict.SLOWER if low > 1 else CostVerdict.FASTER if high < 1 else CostVerdict.UNDECIDED


# --- the table --------------------------------------------------------------------------------------------------------


def times_table(analysis: Analysis) -> Table | None:
    """Medians and ratios by both clocks, with a verdict; None where no run is done."""
    rows, plan = costs(analysis), analysis.plan
    if not any(row.wall.seconds for row in rows):
        return None
    unit, seconds = _unit(max(clock.seconds or 0.0 for row in rows for clock in (row.cpu, row.wall)))
    clocks = [name for name in ("cpu", "wall") if any(getattr(row, name).seconds for row in rows)]
    compared = any(row.cpu.ratio or row.wall.ratio for row in rows)
    header = ["discretization", *(["verdict"] if compared else [])]
    for name in clocks:
        header.append(f"{CLOCKS[name]} ({unit})")
        header += [f"{CLOCKS[name]} : {plan.baseline}"] if compared else []
    cells = []
    for row in rows:
        line = [row.discretization, *([str(row.verdict)] if compared else [])]
        for name in clocks:
            cost = getattr(row, name)
            line.append(NOTHING if cost.seconds is None else f"{cost.seconds / seconds:.1f}")
            line += [cost.ratio.text(2) if cost.ratio else NOTHING] if compared else []
        cells.append(tuple(line))
    return Table("times", "Training time", tuple(header), cells, _note(analysis, compared), frozenset({"verdict"}))


def _note(analysis: Analysis, compared: bool) -> str:
    plan = analysis.plan
    parts = [
        "Medians over the seeds, for training without evaluation. CPU time is the time that all threads of a run spent "
        "computing. Wall time is the elapsed time, which grows if other programs use the machine."
    ]
    if compared:
        decides = "CPU time" if decided_by_cpu(analysis) else "wall time"
        parts.append(
            f"Ratios are medians over pairs of runs with the same seed, with a {CONFIDENCE:.0%} interval if there are "
            f"at least six pairs. The verdict uses {decides}: a rule is slower or faster if its ratio differs from 1 "
            f"by more than {SMALLEST_MARGIN:.0%} and its interval, corrected for the number of rules at level "
            f"{plan.level:g}, excludes 1. Undecided does not mean equal. Use “tustin bench” to measure speed."
        )
    return " ".join(parts)


def _unit(longest: float) -> tuple[str, int]:
    return next(((unit, seconds) for unit, seconds in _UNITS if longest >= 2 * seconds), ("s", 1))
