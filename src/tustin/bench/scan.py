"""The benchmark of the scan: which cells there are, which are worth their time, and the run over all of them."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from .. import __version__
from ..discretize import DISCRETIZATIONS
from ..ops.scan import BACKENDS
from . import machine, timing, workloads
from .checks import LONG, Check, check_all
from .machine import Limit, Limits, Rate
from .options import LAYOUTS, Options, as_facts
from .pairing import Ratio
from .timing import Party, Timing
from .worker import Key, Worker
from .workloads import COMPILED, GPU_PEER, PEER, PEER_KEEPING, Cell, peer_of

FOCUS_BATCH, FOCUS_L = 8, 197
"""Where variants are compared, and what the checks are about: 197 tokens are an image of 224² in patches of 16."""

Report = Callable[[str, int, int], None]
"""Told what is being done, and how many steps of how many are done."""


@dataclass(frozen=True)
class Patience:
    """How much time a measurement may take, in seconds."""

    per_call: dict[str, float]
    """By backend: a cell whose single call takes longer is left out. Ratios rest on the peer; the rest is for scale."""
    per_cell: float
    """Slow cells take part in fewer rounds, in three at least: about this much of calls."""
    per_turn: float
    """Fast cells are called again and again at each turn: about this much of calls."""
    per_party: float
    """The slower ones as well, three times if this is enough for all that are called in turns."""


def _patience(ours: float, peer: float, others: float, per_cell: float, per_turn: float, per_party: float) -> Patience:
    peers = dict.fromkeys((PEER, PEER_KEEPING, GPU_PEER), peer)
    per_call = {"native": ours, "triton": ours, **peers, "reference": others, COMPILED: others}
    return Patience(per_call, per_cell, per_turn, per_party)


PATIENT = _patience(ours=8.0, peer=8.0, others=1.5, per_cell=6.0, per_turn=0.05, per_party=1.0)
QUICK = _patience(ours=1.0, peer=1.5, others=0.15, per_cell=1.0, per_turn=0.02, per_party=0.0)

_NOBODY = "nobody"  # the backend of a worker that measures the machine alone
_SHORT = 64  # tokens, quick for any backend


@dataclass(frozen=True)
class Result:
    """All that one run found out."""

    options: Options
    date: str
    machine: dict[str, Any]
    timings: dict[Cell, Timing]
    skipped: dict[Cell, str]
    limit_timings: dict[str, Timing]
    compile_seconds: float | None
    """What torch.compile took until the longest of its cells was ready."""

    @property
    def limits(self) -> Limits:
        return machine.limits_from(self.limit_timings[machine.GEMM].median, self.limit_timings[machine.COPY].median)

    @property
    def gemm_speedup(self) -> Ratio | None:
        """What all the threads are worth to the matrix product, in the time of one: what to hold a scan against."""
        alone = self.limit_timings.get(machine.GEMM_ONE_THREAD)
        return timing.ratio(alone, self.limit_timings[machine.GEMM]) if alone else None

    def ratio(self, cell: Cell, other: Cell) -> Ratio | None:
        """Time of one by time of the other, if both are known."""
        own, theirs = self.timings.get(cell), self.timings.get(other)
        return timing.ratio(own, theirs) if own and theirs else None

    def times_faster_than_peer(self, cell: Cell) -> float | None:
        """How many of the cell fit into the time of the peer's cell."""
        found = self.ratio(peer_of(cell), cell)
        return found.median if found else None

    def rates(self) -> list[Rate]:
        """How the native forward pass of every rule stands to the limits, at the shape of the focus."""
        if self.options.device != "cpu" or self.options.levels:
            return []
        cells = [
            replace(focus(self.options), discretization=discretization)
            for discretization in self.options.discretizations
        ]
        return [machine.rate(c, self.timings[c].median, self.limits) for c in cells if c in self.timings]

    def checks(self) -> list[Check]:
        """The promises, where this run has what they are about."""
        if self.options.device != "cpu" or self.options.levels:
            return []
        return check_all(
            focus(self.options), self.options.discretizations, self.timings.get, self.limit_timings[machine.GEMM]
        )


def focus(options: Options) -> Cell:
    """Our forward pass at the shape where variants are compared: of the first rule."""
    batch = FOCUS_BATCH if FOCUS_BATCH in options.batch_sizes else options.batch_sizes[-1]
    L = min(options.lengths, key=lambda length: abs(length - FOCUS_L))
    return Cell(
        backend="native" if options.device == "cpu" else "triton",
        discretization=options.discretizations[0],
        batch=batch,
        L=L,
        backward=False,
        dtype=options.dtype,
        layout=options.layout,
        threads=options.threads,
        device=options.device,
    )


def variants(cell: Cell) -> dict[str, Cell]:
    """The same work under another condition."""
    other_layout = LAYOUTS[1 - LAYOUTS.index(cell.layout)]
    other_dtype = "bfloat16" if cell.dtype == "float32" else "float32"
    several = {
        "all fused": replace(cell, fused=True),
        other_dtype: replace(cell, dtype=other_dtype),
        other_layout: replace(cell, layout=other_layout),
    }
    one_thread = cell.device == "cpu" and cell.threads > 1
    return several | ({"one thread": replace(cell, threads=1)} if one_thread else {})


def plan(options: Options) -> list[Cell]:
    """Every cell, those that are compared with each other close together."""
    cells: list[Cell] = []
    center = focus(options)
    if options.levels:
        return [cell for table in level_cells(options) for row in table.values() for cell in row.values()]
    for batch in options.batch_sizes:
        for L in options.lengths:
            for backward in (False, True):
                base = replace(center, batch=batch, L=L, backward=backward)
                own = [replace(base, discretization=discretization) for discretization in options.discretizations]
                peer = peer_of(base)
                fused = replace(base, fused=True)
                cells += [*own, fused, peer, peer_of(fused), replace(peer, backend=PEER_KEEPING)]
                cells += [replace(cell, backend="reference") for cell in own]
                if L <= workloads.LONGEST_COMPILED:
                    cells.append(replace(base, backend=COMPILED))
                if (batch, L) == (center.batch, center.L):
                    cells += [variant for cell in own for variant in variants(cell).values()]
    wanted = {*options.backends, *([PEER_KEEPING] if PEER in options.backends else [])}
    return [cell for cell in dict.fromkeys(cells) if cell.backend in wanted]


def level_cells(options: Options) -> list[dict[str, dict[str, Cell]]]:
    """The cells that compare instruction sets: a table for each direction and number of threads, by rule and level."""
    base = focus(options)
    return [
        {
            discretization: {
                level: replace(base, backward=backward, threads=threads, discretization=discretization, level=level)
                for level in options.levels
            }
            for discretization in options.discretizations
        }
        for backward in (False, True)
        for threads in sorted({1, options.threads})
    ]


def run(options: Options, report: Report) -> Result:
    """Measure everything that is worth its time."""
    patience = QUICK if options.quick else PATIENT
    facts = machine.describe(options.device, peer_of(focus(options)).backend)
    cells = plan(options)
    backends = dict.fromkeys(cell.backend for cell in cells if not _impossible(cell))
    workers = {name: Worker(workloads.ENVIRONMENTS.get(name, {})) for name in backends or [_NOBODY]}
    try:
        calibration = _calibrate(cells, workers, patience, report)
        parties = _parties(calibration.expected, workers, options, patience)
        total, done = sum(party.turns for party in parties), 0

        def tick(number: int) -> None:
            nonlocal done
            done += 1
            report(f"round {number + 1} of {options.repeats}", done, total)

        timings = timing.in_turns(parties, options.repeats, patience.per_turn, tick)
    finally:
        for worker in workers.values():
            worker.close()
    return Result(
        options=options,
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        machine=facts,
        timings={cell: timings[cell] for cell in calibration.expected},
        skipped=calibration.skipped,
        limit_timings={limit.name: timings[limit] for limit in _limits(options)},
        compile_seconds=calibration.compile_seconds,
    )


@dataclass
class _Calibration:
    """What is worth measuring, and roughly how long a call of it takes."""

    expected: dict[Cell, float] = field(default_factory=dict)
    skipped: dict[Cell, str] = field(default_factory=dict)
    compile_seconds: float | None = None


def _calibrate(cells: list[Cell], workers: dict[str, Worker], patience: Patience, report: Report) -> _Calibration:
    found = _Calibration()
    for number, cell in enumerate(cells):
        report("looking for what can be measured", number, len(cells))
        allowed = patience.per_call[cell.backend]
        if reason := _impossible(cell) or _too_large(cell) or _too_slow(cell, found.expected, workers, allowed):
            found.skipped[cell] = reason
            continue
        try:
            first, found.expected[cell] = workers[cell.backend].first_calls(cell)
        except RuntimeError as error:
            if cell.backend not in (COMPILED, GPU_PEER):  # which may be installed without its kernels
                raise
            found.skipped[cell] = " ".join(str(error).split())[:200]  # a compiler's complaints can be pages long
            continue
        if cell.backend == COMPILED:
            found.compile_seconds = max(first, found.compile_seconds or 0.0)
    return found


def _parties(
    expected: dict[Cell, float], workers: dict[str, Worker], options: Options, patience: Patience
) -> list[Party[Key]]:
    """The cells of one shape and backend together, and with them the limits of the machine where they are compared.

    With the long cells go those that a token of them is compared with.
    """
    center = focus(options)
    groups: dict[tuple[object, ...], list[Key]] = {}
    for cell in expected:
        group = groups.setdefault((cell.backend, cell.batch, cell.L, cell.backward), [])
        group.append(cell)
        short = replace(cell, L=center.L)
        if cell.L == LONG != center.L and cell.backend == center.backend and short in expected:
            group.append(short)
    first = next(iter(workers))  # the native backend, if it is there
    where = center.backend, center.batch, center.L, center.backward
    groups.setdefault(where if where in groups else (first,), []).extend(_limits(options))

    def party(worker: Worker, members: list[Key]) -> Party[Key]:
        members = sorted(members, key=_condition)  # stable: neighbours stay neighbours
        calls = [expected[key] for key in members if isinstance(key, Cell)]
        turns = max(3, int(patience.per_cell / max(calls))) if calls else options.repeats
        several_laps = min(patience.per_party, 3 * sum(calls))
        orders = [range(len(members))]

        def run(at_least: float) -> list[list[float]]:
            return worker.laps(members, orders, max(at_least, several_laps))

        return Party(members, run, min(options.repeats, turns))

    return [party(workers[str(where[0])], members) for where, members in groups.items()]


def _condition(key: Key) -> tuple[object, ...]:
    """What calls in a row should have in common, so that each finds threads and tensors as the one before left them."""
    return (-key.threads, key.dtype, key.layout, key.fused) if isinstance(key, Cell) else (-key.threads,)


def _limits(options: Options) -> list[Limit]:
    limits = [Limit(name, options.device, options.threads) for name in (machine.GEMM, machine.COPY)]
    one_thread = options.device == "cpu" and options.threads > 1
    return [*limits, *([Limit(machine.GEMM_ONE_THREAD, options.device, 1)] if one_thread else [])]


def _impossible(cell: Cell) -> str | None:
    """Why this backend cannot run the cell at all."""
    if reason := workloads.missing(cell.backend):
        return reason
    if cell.backend in BACKENDS:
        return BACKENDS[cell.backend].refuses(torch.device(cell.device), DISCRETIZATIONS[cell.discretization])
    return None


def _too_large(cell: Cell) -> str | None:
    needed, available = workloads.needed_bytes(cell), workloads.available_bytes(cell.device)
    if needed <= available / 2:
        return None
    free = f"{available / 1e9:.2g} GB that are free"
    return f"it would need about {needed / 1e9:.2g} GB of memory, more than half of the {free}"


def _too_slow(cell: Cell, expected: dict[Cell, float], workers: dict[str, Worker], allowed: float) -> str | None:
    """Told by the longest shorter sequence that is known; if none is, by one short enough to try."""
    shorter = {c: seconds for c, seconds in expected.items() if c.L < cell.L and replace(c, L=cell.L) == cell}
    if not shorter and cell.L > _SHORT:
        probe = replace(cell, L=_SHORT)
        shorter = {probe: workers[cell.backend].first_calls(probe)[1]}
    if not shorter:
        return None
    nearest = max(shorter, key=lambda c: c.L)
    predicted = shorter[nearest] * cell.L / nearest.L
    if predicted <= allowed:
        return None
    return f"one call would take about {predicted:.1f} s; more than {allowed:g} s are not spent on it"


def as_facts_of(result: Result) -> dict[str, Any]:
    """The result as plain data: what `--json` writes."""
    peer = peer_of(focus(result.options)).backend
    cells = [
        asdict(cell)
        | {
            "seconds": result.timings[cell].told() if cell in result.timings else None,
            f"times_faster_than_{peer}": result.times_faster_than_peer(cell),
            "skipped_because": result.skipped.get(cell),
        }
        for cell in [*result.timings, *result.skipped]
    ]
    return {
        "tustin": __version__,
        "date": result.date,
        "options": as_facts(result.options),
        "shape": {"D": workloads.D, "N": workloads.N},
        "machine": result.machine,
        "limits": {
            "gemm_flop_per_second": result.limits.gemm,
            "copy_bytes_per_second": result.limits.copy,
            "seconds": {name: found.told() for name, found in result.limit_timings.items()},
        },
        "cells": cells,
        "compile_seconds": result.compile_seconds,
        "rates": [asdict(rate) for rate in result.rates()],
        "checks": [check.told() for check in result.checks()],
    }
