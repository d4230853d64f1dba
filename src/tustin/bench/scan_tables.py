"""The result of `tustin bench scan` in tables and words."""

from __future__ import annotations

from dataclasses import replace

from ..report.measurement import Result
from ..report.table import NOTHING, Table, number
from . import machine
from .checks import LONG, checks_table
from .outcome import Outcome
from .scan import Scans, focus, level_cells, variants
from .workloads import COMPILED, LONGEST_COMPILED, PEER_KEEPING, PEERS, Cell, D, N, peer_of


def outcome(result: Result) -> Outcome:
    """The result in all its forms."""
    scans = Scans(result)
    unchecked = not scans.checks() and not result.options.levels
    return Outcome(
        result=result,
        summary=summary(result),
        tables=tables(scans),
        backwards=True,
        left_out=left_out(scans),
        findings=scans.findings(),
        of_case=scans.of_case,
        remarks=[
            "No checks: they are stated for batch 8, L 197, float32 and two threads, which this run did not measure."
        ]
        if unchecked
        else [],
    )


def tables(scans: Scans) -> list[Table]:
    """Everything that was found out, the verdicts first."""
    options = scans.options
    if options.levels:
        return [_levels(scans, rows) for rows in level_cells(options)]
    title = "Checks, batch 8, L 197, two threads, float32"
    several = [
        checks_table(scans.checks(), title, "claim (ratio of times, worst rule)"),
        _rates(scans),
        _limits(scans),
        _variants(scans, True),
        _variants(scans, False),
        *(_grid(scans, batch, backward) for backward in (True, False) for batch in options.batch_sizes[::-1]),
    ]
    return [table for table in several if table.rows]


def summary(result: Result) -> str:
    """Where and how it was measured."""
    options = result.options
    shape = f"D {D}, N {N}, {options.dtype}, {options.layout}"
    return f"{result.where} {shape}; {result.rounds} round{'s'[: result.rounds > 1]} in turns{result.busy}."


def left_out(scans: Scans) -> list[str]:
    """What was not measured and why: one line each."""
    lines = [
        f"{_backend_name(backend)}: {reason}"
        for backend in dict.fromkeys(cell.backend for cell in scans.skipped)
        if (reason := _reason_for_all(scans, backend))
    ]
    for cell, reason in scans.skipped.items():
        if _reason_for_all(scans, cell.backend):
            continue
        alike = [c for c in scans.skipped if replace(c, discretization=cell.discretization) == cell]
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
    if (compiling := scans.result.notes["compile_seconds"]) is not None:
        lines.append(
            f"{_backend_name(COMPILED)}: L up to {LONGEST_COMPILED} only, because the loop over time is unrolled; "
            f"compiling took up to {compiling:.0f} s"
        )
    return lines


def _reason_for_all(scans: Scans, backend: str) -> str | None:
    """The one reason why nothing of this backend was measured, if that is so."""
    reasons = {reason for cell, reason in scans.skipped.items() if cell.backend == backend}
    measured = any(cell.backend == backend for cell in scans.measured)
    return reasons.pop() if len(reasons) == 1 and not measured else None


# --- the tables -------------------------------------------------------------------------------------------------------


def _grid(scans: Scans, batch: int, backward: bool) -> Table:
    lengths = scans.options.lengths
    base = replace(focus(scans.options), batch=batch, backward=backward)
    lines = [replace(base, discretization=discretization) for discretization in scans.options.discretizations]
    lines += [replace(base, fused=True), *(replace(line, backend="reference") for line in lines)]
    peer = peer_of(base)
    lines += [replace(base, backend=COMPILED), replace(peer, backend=PEER_KEEPING), peer]
    lines += [peer_of(replace(base, fused=True))] if peer_of(replace(base, fused=True)) != peer else []
    rows = []
    for line in lines:
        cells = [replace(line, L=L) for L in lengths]
        if any(map(scans.timing, cells)):
            rows.append((_line_name(line), *(_entry(scans, cell) for cell in cells)))
    return Table(
        name=f"{base.mode}-batch-{batch}",
        title=f"{base.mode[0].upper()}{base.mode[1:]}, batch {batch}",
        header=("", *(f"L {L}" for L in lengths)),
        rows=rows,
        note="Median ms per call, ± half the distance between the quartiles, and how many times faster than "
        f"{peer.backend}.",
    )


def _entry(scans: Scans, cell: Cell) -> str:
    found = scans.timing(cell)
    if not found:
        return NOTHING
    ratio = scans.times_faster_than_peer(cell)
    faster = f"{number(ratio)}x" if ratio else ""
    return f"{number(found.median * 1e3)} {f'±{found.spread:.0%}':>4} {faster:>6}"


def _variants(scans: Scans, backward: bool) -> Table:
    base = replace(focus(scans.options), backward=backward)
    kinds = [*variants(base)]
    rows = []
    for discretization in scans.options.discretizations:
        cell = replace(base, discretization=discretization)
        if not (found := scans.timing(cell)):
            continue
        seconds = found.median
        others = [scans.ratio(variant, cell) for variant in variants(cell).values()]
        long = scans.ratio(replace(cell, L=LONG), cell)
        others.append(long.scaled(cell.L / LONG) if long else None)
        updates = f"{cell.updates / seconds / 1e9:.2f}"
        entries = [f"{other.median:.2f}" if other else NOTHING for other in others]
        rows.append((discretization, f"{number(seconds * 1e3)}", updates, *entries))
    return Table(
        name=f"{base.mode}-variants",
        title=f"{base.backend.title()}, {base.mode}, batch {base.batch}, L {base.L}: cost of options",
        header=("", "ms", "10⁹/s", *kinds, f"a token at L {LONG}"),
        rows=rows,
        note="10⁹/s: state updates per second. The columns after it are times relative to the first column.",
    )


def _levels(scans: Scans, rows: dict[str, dict[str, Cell]]) -> Table:
    best, *others = scans.options.levels
    some = next(iter(rows.values()))[best]
    entries = []
    for discretization, cells in rows.items():
        ratios = [scans.ratio(cells[level], cells[best]) for level in others]
        texts = [ratio.text(2) if ratio else NOTHING for ratio in ratios]
        entries.append((discretization, number(scans.result.timings[cells[best]].median * 1e3), *texts))
    return Table(
        name=f"levels-{some.mode}-{some.threads}",
        title=f"Instruction sets: {some.mode}, batch {some.batch}, L {some.L}, {some.threads} thread"
        + "s" * (some.threads > 1),
        header=("", f"{best}, ms", *(f"{level} : {best}" for level in others)),
        rows=entries,
        note="Median time of a call, and the other times relative to it with 95% intervals, within the same laps.",
    )


def _limits(scans: Scans) -> Table:
    gemm, copy = f"GEMM, {machine.GEMM_SIZE}³, float32", f"copy, {machine.COPY_BYTES >> 20} MiB"
    shown = {
        machine.GEMM: (gemm, machine.GEMM_FLOP, "GFLOP/s"),
        machine.GEMM_ONE_THREAD: (f"{gemm}, one thread", machine.GEMM_FLOP, "GFLOP/s"),
        machine.COPY: (copy, 2 * machine.COPY_BYTES, "GB/s"),
    }
    rows = []
    for limit, (name, work, unit) in shown.items():
        if timing := scans.limit_timings.get(limit):
            rows.append((name, f"{work / timing.median / 1e9:.1f} {unit}", f"±{timing.spread:.0%}"))
    speedup = scans.gemm_speedup
    threads = (
        f"GEMM is {speedup.median:.2f} times faster with {scans.options.threads} threads than with one."
        if speedup
        else ""
    )
    return Table("limits", "Limits of the machine", ("", "rate", "spread"), rows, threads)


def _rates(scans: Scans) -> Table:
    base = focus(scans.options)
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
        for rate in scans.rates()
    ]
    return Table(
        name="rates",
        title=f"Native, forward, batch {base.batch}, L {base.L}: share of the attainable rate",
        header=("", "FMA", "attainable", "reached", "share", "GEMM FLOP per update", "of copy bandwidth"),
        rows=rows,
        note="FMA: multiplications per update, fused or not. Rates: 10⁹ updates/s; attainable = GEMM FLOP/s / (2·FMA).",
    )


def _line_name(cell: Cell) -> str:
    if not _has_rules(cell.backend):
        return f"{cell.backend}{', fused' if cell.fused else ''}"
    return f"{_backend_name(cell.backend)} {cell.discretization}{', fused' if cell.fused else ''}"


def _has_rules(backend: str) -> bool:
    return backend not in PEERS


def _backend_name(backend: str) -> str:
    return "torch.compile" if backend == COMPILED else backend
