"""The result for people: the same tables on the terminal and in a Markdown page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from . import machine
from .checks import LONG, Check
from .pairing import Ratio
from .scan import Result, focus, level_cells, variants
from .workloads import COMPILED, LONGEST_COMPILED, PEER_KEEPING, PEERS, Cell, D, N, peer_of

_NAME_WIDTH, _ENTRY_WIDTH = 22, 19  # columns of text that a row of times needs


@dataclass(frozen=True)
class Table:
    """Text in rows; the first column says what the row is about."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""
    long_names: bool = False
    """Whether the first column gives way where there is little room, and not the others."""


def tables(result: Result, width: int) -> list[Table]:
    """Everything that was found out, the verdicts last; with as many lengths to a table as `width` has room for."""
    options = result.options
    if options.levels:
        return [_levels(result, rows) for rows in level_cells(options)]
    room = max(1, (width - _NAME_WIDTH) // _ENTRY_WIDTH)
    groups = [options.lengths[i : i + room] for i in range(0, len(options.lengths), room)]
    grids = [
        _grid(result, batch, lengths, backward)
        for backward in (False, True)
        for batch in options.batch_sizes
        for lengths in groups
    ]
    several = [
        *grids,
        _variants(result, False),
        _variants(result, True),
        _limits(result),
        _rates(result),
        _checks(result),
    ]
    return [table for table in several if table.rows]


def summary(result: Result) -> list[str]:
    """Where and how it was measured: one sentence a line."""
    options = result.options
    busy = machine.busy(result.machine)
    return [
        f"{machine.where(result.machine, options.threads)}; {result.date}.",
        f"D {D}, N {N}, {options.dtype}, {options.layout}; {options.repeats} rounds in turns{busy}.",
    ]


def left_out(result: Result) -> list[str]:
    """What was not measured and why: one line each."""
    lines = [
        f"{_backend_name(backend)}: {reason}"
        for backend in dict.fromkeys(cell.backend for cell in result.skipped)
        if (reason := _reason_for_all(result, backend))
    ]
    for cell, reason in result.skipped.items():
        if _reason_for_all(result, cell.backend):
            continue
        alike = [c for c in result.skipped if replace(c, discretization=cell.discretization) == cell]
        if cell is alike[0]:
            which = (
                f" of {len(alike)} rules"
                if len(alike) > 1
                else f" of {cell.discretization}"
                if _has_rules(cell.backend)
                else ""
            )
            shape = f"{cell.mode}, batch {cell.batch}, L {cell.L}"
            lines.append(f"{_backend_name(cell.backend)}{which}, {shape}: {reason}")
    if result.compile_seconds is not None:
        lines.append(
            f"{_backend_name(COMPILED)}: L up to {LONGEST_COMPILED} only, because the loop over time is unrolled; "
            f"compiling took up to {result.compile_seconds:.0f} s"
        )
    return lines


def _reason_for_all(result: Result, backend: str) -> str | None:
    """The one reason why nothing of this backend was measured, if that is so."""
    reasons = {reason for cell, reason in result.skipped.items() if cell.backend == backend}
    measured = any(cell.backend == backend for cell in result.timings)
    return reasons.pop() if len(reasons) == 1 and not measured else None


# --- the tables -------------------------------------------------------------------------------------------------------


def _grid(result: Result, batch: int, lengths: Sequence[int], backward: bool) -> Table:
    base = replace(focus(result.options), batch=batch, backward=backward)
    lines = [replace(base, discretization=discretization) for discretization in result.options.discretizations]
    lines += [replace(base, fused=True), *(replace(line, backend="reference") for line in lines)]
    peer = peer_of(base)
    lines += [replace(base, backend=COMPILED), replace(peer, backend=PEER_KEEPING), peer]
    lines += [peer_of(replace(base, fused=True))] if peer_of(replace(base, fused=True)) != peer else []
    rows = []
    for line in lines:
        cells = [replace(line, L=L) for L in lengths]
        if any(cell in result.timings for cell in cells):
            rows.append((_line_name(line), *(_entry(result, cell) for cell in cells)))
    return Table(
        title=f"{base.mode[0].upper()}{base.mode[1:]}, batch {batch}",
        header=("", *(f"L {L}" for L in lengths)),
        rows=rows,
        note="ms per call (median), ± half the distance of the quartiles, and how many times faster than "
        f"{peer.backend}.",
    )


def _entry(result: Result, cell: Cell) -> str:
    found = result.timings.get(cell)
    if not found:
        return "–"
    ratio = result.times_faster_than_peer(cell)
    faster = f"{number(ratio)}x" if ratio else ""
    return f"{number(found.median * 1e3)} {f'±{found.spread:.0%}':>4} {faster:>6}"


def _variants(result: Result, backward: bool) -> Table:
    base = replace(focus(result.options), backward=backward)
    kinds = [*variants(base)]
    rows = []
    for discretization in result.options.discretizations:
        cell = replace(base, discretization=discretization)
        if cell not in result.timings:
            continue
        seconds = result.timings[cell].median
        others = [result.ratio(variant, cell) for variant in variants(cell).values()]
        long = result.ratio(replace(cell, L=LONG), cell)
        others.append(long.scaled(cell.L / LONG) if long else None)
        updates = f"{cell.updates / seconds / 1e9:.2f}"
        entries = [f"{other.median:.2f}" if other else "–" for other in others]
        rows.append((discretization, f"{number(seconds * 1e3)}", updates, *entries))
    return Table(
        title=f"{base.backend.title()}, {base.mode}, batch {base.batch}, L {base.L}: what else it costs",
        header=("", "ms", "10⁹/s", *kinds, f"a token at L {LONG}"),
        rows=rows,
        note="10⁹/s: updates of a state. After them: times relative to the first column.",
    )


def _levels(result: Result, rows: dict[str, dict[str, Cell]]) -> Table:
    best, *others = result.options.levels
    some = next(iter(rows.values()))[best]
    entries = []
    for discretization, cells in rows.items():
        ratios = [result.ratio(cells[level], cells[best]) for level in others]
        texts = [_with_interval(ratio) if ratio else "–" for ratio in ratios]
        entries.append((discretization, number(result.timings[cells[best]].median * 1e3), *texts))
    return Table(
        title=f"Instruction sets: {some.mode}, batch {some.batch}, L {some.L}, {some.threads} thread"
        + "s" * (some.threads > 1),
        header=("", f"{best}, ms", *(f"{level} : {best}" for level in others)),
        rows=entries,
        note="Median time of a call, and times relative to it with their 95% intervals, all in the same laps.",
    )


def _with_interval(ratio: Ratio) -> str:
    low, high = ratio.interval()
    known = f" ({low:.2f} to {high:.2f})" if math.isfinite(high) else ""  # a few laps have no interval
    return f"{ratio.median:.2f}{known}"


def _limits(result: Result) -> Table:
    gemm, copy = f"GEMM, {machine.GEMM_SIZE}³, float32", f"copy, {machine.COPY_BYTES >> 20} MiB"
    shown = {
        machine.GEMM: (gemm, machine.GEMM_FLOP, "GFLOP/s"),
        machine.GEMM_ONE_THREAD: (f"{gemm}, one thread", machine.GEMM_FLOP, "GFLOP/s"),
        machine.COPY: (copy, 2 * machine.COPY_BYTES, "GB/s"),
    }
    rows = []
    for limit, (name, work, unit) in shown.items():
        if timing := result.limit_timings.get(limit):
            rows.append((name, f"{work / timing.median / 1e9:.1f} {unit}", f"±{timing.spread:.0%}"))
    speedup = result.gemm_speedup
    threads = f"{result.options.threads} threads are worth {speedup.median:.2f} times one to GEMM." if speedup else ""
    return Table(title="Limits of the machine", header=("", "rate", "spread"), rows=rows, note=threads)


def _rates(result: Result) -> Table:
    base = focus(result.options)
    rows = [
        (
            rate.discretization,
            f"{machine.MULTIPLICATIONS[rate.discretization]}"
            f"{' + div' if machine.DIVISIONS.get(rate.discretization) else ''}",
            f"{rate.attainable / 1e9:.2f}",
            f"{rate.updates / 1e9:.2f}",
            f"{rate.share:.0%}",
            f"{rate.gemm_ratio:.1f}",
            f"{rate.traffic_share:.0%}",
        )
        for rate in result.rates()
    ]
    return Table(
        title=f"Native, forward, batch {base.batch}, L {base.L}: share of the attainable rate",
        header=("", "FMA", "attainable", "reached", "share", "GEMM FLOP per update", "of copy bandwidth"),
        rows=rows,
        note="FMA: multiplications per update, fused or not. In 10⁹ updates/s; attainable = GEMM FLOP/s / (2·FMA).",
    )


def _checks(result: Result) -> Table:
    return Table(
        title="Checks, batch 8, L 197, two threads, float32",
        header=("claim (ratio of times, worst rule)", *CHECK_COLUMNS),
        rows=[(check.claim, *check_texts(check)) for check in result.checks()],
        long_names=True,
    )


CHECK_COLUMNS = "required", "measured", "95% interval", "holds"


def check_texts(check: Check) -> tuple[str, ...]:
    """A check in words, column by column."""
    required = f"{check.relation} {check.bound:g}"
    if check.measured is None:
        return required, "not measured", "–", "–"
    measured = f"{check.measured:g}" + (f" ({check.which})" if check.which else "")
    interval = f"{check.interval[0]:g} to {check.interval[1]:g}" if check.interval else "–"
    return required, measured, interval, ("yes" if check.holds else "no") if check.decided else "undecided"


def _line_name(cell: Cell) -> str:
    if not _has_rules(cell.backend):
        return f"{cell.backend}{', fused' if cell.fused else ''}"
    return f"{_backend_name(cell.backend)} {cell.discretization}{', fused' if cell.fused else ''}"


def _has_rules(backend: str) -> bool:
    return backend not in PEERS


def _backend_name(backend: str) -> str:
    return "torch.compile" if backend == COMPILED else backend


def number(value: float) -> str:
    """Three digits, and never an exponent."""
    rounded = float(f"{value:.3g}")  # 99.97 has its decimal point where 100 has it
    digits = next((d for d, bound in ((3, 1), (2, 10), (1, 100)) if rounded < bound), 0)
    return f"{value:.{digits}f}"


# --- the two forms ----------------------------------------------------------------------------------------------------


def for_terminal(result: Result, width: int) -> list[Any]:
    """Text and tables for rich."""
    from rich import box
    from rich.table import Table as RichTable

    parts: list[Any] = [*summary(result), ""]
    for table in tables(result, width):
        drawn = RichTable(
            box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold"
        )
        for number, name in enumerate(table.header):
            gives_way = table.long_names == (number == 0)
            drawn.add_column(name, justify="right" if number else "left", no_wrap=not gives_way)
        for row in table.rows:
            drawn.add_row(*row)
        parts += [table.title, drawn, *([table.note] if table.note else []), ""]
    if lines := left_out(result):
        parts += ["Not measured", *(f"- {line}" for line in lines), ""]
    if not result.checks() and not result.options.levels:
        parts.append(
            "No checks: they are stated for batch 8, L 197, float32 and two threads, which this run did not measure."
        )
    return parts


def for_markdown(result: Result, command: str) -> str:
    """The block of docs/performance.md that `--markdown` renews."""
    parts = [f"Measured by `{command}`. {' '.join(summary(result))}", ""]
    # The verdicts first: a page is read from its top, a terminal from its bottom.
    for table in reversed(tables(result, width=120)):
        parts += [f"### {table.title}", ""]
        parts += [_markdown_row(table.header), _markdown_row(["---", *["---:"] * (len(table.header) - 1)])]
        parts += [*(_markdown_row(row) for row in table.rows), ""]
        parts += [table.note, ""] if table.note else []
    if lines := left_out(result):
        parts += ["### Not measured", "", *(f"- {line}" for line in lines)]
    return "\n".join(parts).rstrip() + "\n"


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(' '.join(cell.split()) for cell in cells)} |"
