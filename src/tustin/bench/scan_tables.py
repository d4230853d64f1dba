"""The result of `tustin bench scan` in tables and words."""

from __future__ import annotations

from dataclasses import replace

from ..report.measurement import Result
from ..report.table import NOTHING, Table, number
from ..report.timing import lap_ratio
from . import machine
from .checks import LONG, checks_tables
from .measure import of_same_work
from .outcome import Outcome
from .scan import Scans, focus, level_cells, of_rules, variants
from .workloads import COMPILED, LONGEST_COMPILED, PEER_KEEPING, PEERS, Cell, D, N, peer_of

_UNCHECKED = "No checks: they are stated for batch 8, L 197, float32 and two threads, which this run did not measure."


def outcome(result: Result) -> Outcome:
    """The result in all its forms."""
    scans = Scans(result)
    checks = scans.checks()
    return Outcome(
        result=result,
        summary=summary(result),
        tables=tables(scans),
        backwards=True,
        left_out=left_out(scans),
        findings=scans.findings(),
        checks=checks,
        of_case=scans.of_case,
        remarks=[] if checks or result.options.levels else [_UNCHECKED],
    )


def tables(scans: Scans) -> list[Table]:
    """Everything that was found out, the verdicts first."""
    options = scans.options
    if options.levels:
        return [_levels(scans, rows) for rows in level_cells(options)]
    title = "Checks, batch 8, L 197, two threads, float32"
    several = [
        *checks_tables(scans.checks(), title, "claim (ratio of times, worst rule)"),
        _rates(scans),
        _limits(scans),
        *(_variants(scans, backward) for backward in (True, False)),
        *(_grid(scans, batch, backward) for backward in (True, False) for batch in options.batch_sizes[::-1]),
    ]
    return [table for table in several if table.rows]


def summary(result: Result) -> str:
    """Where and how it was measured."""
    options = result.options
    shape = f"D {D}, N {N}, {options.dtype}, {options.layout}"
    return f"{result.where} {shape}; {result.turns}{result.busy}."


def left_out(scans: Scans) -> list[str]:
    """What was not measured and why: one line each."""
    lines, told = [], set()
    for backend in dict.fromkeys(cell.backend for cell in scans.skipped):
        reasons = {reason for cell, reason in scans.skipped.items() if cell.backend == backend}
        if len(reasons) == 1 and not any(cell.backend == backend for cell in scans.timings):
            lines.append(f"{_backend_name(backend)}: {reasons.pop()}")
            told.add(backend)
    for cell, *others in of_same_work(cell for cell in scans.skipped if cell.backend not in told):
        rules = f" of {1 + len(others)} rules" if others else _rule_of(cell, " of ")
        shape = f"{cell.mode}, batch {cell.batch}, L {cell.L}"
        lines.append(f"{_backend_name(cell.backend)}{rules}, {shape}: {scans.skipped[cell]}")
    if (compiling := scans.result.notes["compile_seconds"]) is not None:
        lines.append(
            f"{_backend_name(COMPILED)}: L up to {LONGEST_COMPILED} only, because the loop over time is unrolled; "
            f"compiling took up to {compiling:.0f} s"
        )
    return lines


# --- the tables -------------------------------------------------------------------------------------------------------


def _grid(scans: Scans, batch: int, backward: bool) -> Table:
    base = replace(focus(scans.options), batch=batch, backward=backward)
    fused, peer = replace(base, fused=True), peer_of(base)
    ours = [*of_rules(base, scans.options), fused]
    lines = [*ours, *(replace(line, backend="reference") for line in ours), replace(base, backend=COMPILED)]
    rows = []
    for line in dict.fromkeys([*lines, replace(peer, backend=PEER_KEEPING), peer, peer_of(fused)]):
        cells = [replace(line, L=L) for L in scans.options.lengths]
        if any(cell in scans.timings for cell in cells):
            rows.append((_line_name(line), *(_entry(scans, cell) for cell in cells)))
    return Table(
        name=f"{base.mode}-batch-{batch}",
        title=f"{base.mode[0].upper()}{base.mode[1:]}, batch {batch}",
        header=("", *(f"L {L}" for L in scans.options.lengths)),
        rows=rows,
        note="Median ms per call, ± half the distance between the quartiles, and how many times faster than "
        f"{peer.backend}.",
    )


def _entry(scans: Scans, cell: Cell) -> str:
    if not (found := scans.timings.get(cell)):
        return NOTHING
    ratio = scans.times_faster_than_peer(cell)
    faster = f"{number(ratio)}x" if ratio else ""
    return f"{number(found.median * 1e3)} {f'±{found.spread:.0%}':>4} {faster:>6}"


def _variants(scans: Scans, backward: bool) -> Table:
    base = replace(focus(scans.options), backward=backward)
    rows = []
    for cell in of_rules(base, scans.options):
        if not (found := scans.timings.get(cell)):
            continue
        others = [scans.result.ratio(variant, cell) for variant in variants(cell).values()]
        long = scans.result.ratio(replace(cell, L=LONG), cell)
        entries = [
            f"{other.median:.2f}" if other else NOTHING for other in (*others, long and long.scaled(cell.L / LONG))
        ]
        rows.append(
            (cell.discretization, number(found.median * 1e3), f"{cell.updates / found.median / 1e9:.2f}", *entries)
        )
    return Table(
        name=f"{base.mode}-variants",
        title=f"{base.backend.title()}, {base.mode}, batch {base.batch}, L {base.L}: cost of options",
        header=("", "ms", "10⁹/s", *variants(base), f"a token at L {LONG}"),
        rows=rows,
        note="10⁹/s: state updates per second. The columns after it are times relative to the first column.",
    )


def _levels(scans: Scans, rows: dict[str, dict[str, Cell]]) -> Table:
    best, *others = scans.options.levels
    some = next(iter(rows.values()))[best]
    entries = []
    for discretization, cells in rows.items():
        ratios = [scans.result.ratio(cells[level], cells[best]) for level in others]
        texts = [ratio.text(2) if ratio else NOTHING for ratio in ratios]
        entries.append((discretization, number(scans.timings[cells[best]].median * 1e3), *texts))
    threads = f"{some.threads} thread{'s' * (some.threads > 1)}"
    return Table(
        name=f"levels-{some.mode}-{some.threads}",
        title=f"Instruction sets: {some.mode}, batch {some.batch}, L {some.L}, {threads}",
        header=("", f"{best}, ms", *(f"{level} : {best}" for level in others)),
        rows=entries,
        note="Median time of a call, and the other times relative to it with 95% intervals, within the same laps.",
    )


def _limits(scans: Scans) -> Table:
    gemm = f"GEMM, {machine.GEMM_SIZE}³, float32"
    rows = [
        (name, f"{scans.limit(limit) / 1e9:.1f} {unit}", f"±{scans.limits[limit].spread:.0%}")
        for limit, name, unit in (
            (machine.GEMM, gemm, "GFLOP/s"),
            (machine.GEMM_ONE_THREAD, f"{gemm}, one thread", "GFLOP/s"),
            (machine.COPY, f"copy, {machine.COPY_BYTES >> 20} MiB", "GB/s"),
        )
        if limit in scans.limits
    ]
    speedup = lap_ratio(scans.limits.get(machine.GEMM_ONE_THREAD), scans.limits[machine.GEMM])
    compared = f"times faster with {scans.options.threads} threads than with one."
    note = f"GEMM is {speedup.median:.2f} {compared}" if speedup else ""
    return Table("limits", "Limits of the machine", ("", "rate", "spread"), rows, note)


def _rates(scans: Scans) -> Table:
    base, rows = focus(scans.options), []
    for rate in scans.rates():
        rule = rate.discretization
        operations = f"{machine.MULTIPLICATIONS[rule]}{' + div' * (rule in machine.DIVISIONS)}"
        reached = f"{rate.attainable / 1e9:.2f}", f"{rate.updates / 1e9:.2f}", f"{rate.share:.0%}"
        rows.append((rule, operations, *reached, f"{rate.gemm_ratio:.1f}", f"{rate.traffic_share:.0%}"))
    return Table(
        name="rates",
        title=f"Native, forward, batch {base.batch}, L {base.L}: share of the attainable rate",
        header=("", "FMA", "attainable", "reached", "share", "GEMM FLOP per update", "of copy bandwidth"),
        rows=rows,
        note="FMA: multiplications per update, fused or not. Rates: 10⁹ updates/s; attainable = GEMM FLOP/s / (2·FMA).",
    )


def _line_name(cell: Cell) -> str:
    return f"{_backend_name(cell.backend)}{_rule_of(cell, ' ')}{', fused' * cell.fused}"


def _rule_of(cell: Cell, before: str) -> str:
    """The rule after `before`; nothing for a peer, which has only one."""
    return "" if cell.backend in PEERS else f"{before}{cell.discretization}"


def _backend_name(backend: str) -> str:
    return "torch.compile" if backend == COMPILED else backend
