"""The tables of docs/gpu.md, from the compiled code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...report.block import Block
from ...report.formats import as_markdown
from ...report.table import Table, Value
from .cases import BATCHES
from .report import PASSES, least
from .roofline import GPUS
from .survey import Found, relative_to_zoh

COUNTED, ESTIMATED = Block("gpu instructions", "doctor"), Block("gpu estimate", "doctor")
NEEDED, DTYPE = ("sm_80", "sm_90"), "float32"
"""What the tables are about."""
_SIDES = ("forward", "backward")


def insist(page: Path) -> None:
    """ValueError if the page has no place for the tables."""
    text = page.read_text(encoding="utf-8")
    for block in (COUNTED, ESTIMATED):
        block.split(text, str(page))


def write(page: Path, found: Sequence[Found]) -> None:
    """Put both tables into the page."""
    shown = {one.name: one for one in found if one.case.dtype == DTYPE}
    rules = list(dict.fromkeys(rule for _, _, rule in shown if rule))
    COUNTED.replace(page, as_markdown(_counted(shown, rules), 3))
    ESTIMATED.replace(page, as_markdown(_estimated(shown, rules), 3))


_Shown = dict[tuple[str, str, str | None], Found]


def _counted(shown: _Shown, rules: Sequence[str]) -> Table:
    header = ["rule"]
    for side in _SIDES:
        header += [f"{side}: registers", f"{side}: sm_80", f"{side}: sm_90", f"{side}: to zoh"]
        header += [f"{side}: loads", f"{side}: stores"]
    rows: list[tuple[Value, ...]] = []
    for rule in rules:
        cells: list[str] = []
        for side in _SIDES:
            old, new = (shown[target, f"scan {side}", rule] for target in NEEDED)
            ratio = relative_to_zoh(new, list(shown.values()))
            cells += [f"{old.code.registers}, {new.code.registers}", _number(old.per_update(), 1)]
            cells += [_number(new.per_update(), 1), _number(ratio, 2)]
            cells += [_number(new.per_update(f"global {kind}"), 2) for kind in ("load", "store")]
        rows.append((rule, *cells))
    note = (
        "Registers: of a thread, on sm_80 and on sm_90. sm_80, sm_90: instructions of a thread per token and state. To "
        "zoh: instructions relative to zoh, on sm_90. Loads, stores: of global memory, per token and state, on sm_90."
    )
    return Table("counted", "Instructions of the scan", tuple(header), rows, note)


def _estimated(shown: _Shown, rules: Sequence[str]) -> Table:
    columns = [(target, name, kernels) for target in NEEDED for name, kernels in PASSES.items()]
    header = ("", *(f"{GPUS[target].name.split()[0]}: {name}" for target, name, _ in columns))
    rows: list[tuple[Value, ...]] = []
    for rule in rules:
        passes = ([shown.get((t, k, rule)) or shown[t, k, None] for k in kernels] for t, _, kernels in columns)
        rows.append((rule, *(least(launches) for launches in passes)))
    whole = [name for name in PASSES if name.endswith(f" {BATCHES['']}")]
    convolution = [
        least([shown[target, f"conv {name.split(',')[0]}", None]]) if name in whole else None
        for target, name, _ in columns
    ]
    rows.append(("convolution", *convolution))
    moved = {side: shown[NEEDED[0], f"scan {side}", rules[0]].case.launch.bytes for side in _SIDES}
    memory = "; ".join(
        f"{side} {size / 1e6:.1f} MB, which memory moves in "
        + " and ".join(f"{size / GPUS[target].bytes_per_second * 1e6:.1f} µs" for target in NEEDED)
        for side, size in moved.items()
    )
    same = f"The bytes of {BATCHES['']} images are the same for every rule without λ"
    note = f"Microseconds, and the limit: memory, issue or units. {same}: {memory}."
    return Table("estimated", "Least time of one scan", header, rows, note)


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
