"""The results for people: made from the facts in the file, so that a file from another machine can be shown, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..bench.workloads import GPU_PEER
from ..report.table import Table, Value
from .outcome import FAILED, PASSED
from .speed import PASSES

_SHARES = ("forward_share", "backward_share")


def tables(facts: Mapping[str, Any]) -> list[Table]:
    """Tables of the results: accuracy by rule and dtype, speed, the other checks, and what failed."""
    made = [_accuracy(_of(facts, "scan")), _speed(_of(facts, "speed")), _others(_of(facts, "use"))]
    wrong = [check for check in facts["checks"] if check["status"] == FAILED]
    return [*made, *([_failures(wrong)] if wrong else [])]


def failed(facts: Mapping[str, Any]) -> list[str]:
    """One line for each check that failed: its name and the reason."""
    return [f"{c['group']} {c['name']}: {c['says']}" for c in facts["checks"] if c["status"] == FAILED]


def summary(facts: Mapping[str, Any]) -> str:
    """One sentence: how many checks passed, failed and were skipped."""
    counts = facts["counts"]
    text = f"{facts['gpu']['name']}: {counts[PASSED]} of {counts['all']} checks passed"
    return f"{text}, {counts[FAILED]} failed, {counts['skipped']} skipped."


def _of(facts: Mapping[str, Any], group: str) -> list[Mapping[str, Any]]:
    return [check for check in facts["checks"] if check["group"] == group]


def _accuracy(checks: Sequence[Mapping[str, Any]]) -> Table:
    pairs = {tuple(check["name"].split(", ")): check for check in checks}
    rules, dtypes = (list(dict.fromkeys(pair[place] for pair in pairs)) for place in (0, 1))
    rows: list[tuple[Value, ...]] = []
    for rule in rules:
        rows.append((rule, *(_accuracy_cell(pairs.get((rule, dtype))) for dtype in dtypes)))
    note = (
        "Largest error of values and of gradients, relative to the tolerance, over all shapes. The errors are against "
        "float64 on the CPU. Everything is computed twice and must give the same bits."
    )
    return Table("accuracy", "Every rule, forward and backward", ("rule", *dtypes), rows, note, frozenset(dtypes))


def _accuracy_cell(check: Mapping[str, Any] | None) -> str | None:
    if check is None:
        return None
    if check["status"] != PASSED:
        return str(check["status"])
    forward, backward = (check["numbers"][name] for name in _SHARES)
    return f"passed {forward:.0%}, {backward:.0%}"


def _speed(checks: Sequence[Mapping[str, Any]]) -> Table:
    peer: Mapping[str, Any] = next((check["numbers"] for check in checks if check["name"] == GPU_PEER), {})
    header = ["scan"]
    for name in PASSES:
        header += [f"{name}, µs", f"to {GPU_PEER}", "to the estimate"]
    rows = [(check["name"], *_speed_cells(check["numbers"], peer), _peak_text(check["numbers"])) for check in checks]
    note = "Medians in microseconds. The estimate is a lower bound from the code and the data sheet, see docs/gpu.md."
    return Table("speed", "Speed and memory", (*_distinct(header), "peak memory, MB"), rows, note)


def _distinct(header: Sequence[str]) -> list[str]:
    """The second of two equal titles has its pass before it."""
    first, second = header[1:4], header[4:]
    return [header[0], *first, second[0], *(f"{title}, both" for title in second[1:])]


def _speed_cells(numbers: Mapping[str, Any], peer: Mapping[str, Any]) -> list[str | None]:
    cells: list[str | None] = []
    for name in PASSES:
        own = numbers.get(f"{name}_us")
        cells.append(None if own is None else f"{own:.1f}")
        for other in (peer.get(f"{name}_us"), numbers.get(f"{name}_estimate_us")):
            cells.append(f"{own / other:.2f}" if own and other else None)
    return cells


def _peak_text(numbers: Mapping[str, Any]) -> str | None:
    peak = numbers.get(f"{list(PASSES)[-1]}_peak_bytes")
    return None if peak is None else f"{peak / 1e6:.1f}"


def _others(checks: Sequence[Mapping[str, Any]]) -> Table:
    rows = [(check["name"], check["status"], check["says"]) for check in checks]
    words = frozenset({"result", "what was found"})
    return Table("use", "In use", ("check", "result", "what was found"), rows, words=words, long_names=True)


def _failures(checks: Sequence[Mapping[str, Any]]) -> Table:
    rows = [(f"{check['group']} {check['name']}", check["says"]) for check in checks]
    return Table("failures", "What failed", ("check", "why"), rows, words=frozenset({"why"}), long_names=True)
