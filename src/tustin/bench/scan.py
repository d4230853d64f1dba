"""The benchmark of the scan: which cells there are, which are worth their time, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from ..discretize import DISCRETIZATIONS
from ..ops.scan import BACKENDS
from ..report.measurement import Case, Options, Result
from ..report.terminal import Report
from . import machine, worker, workloads
from .checks import LONG, Check, check_all
from .machine import Limit, Rate
from .measure import Party, Plan, Process, Processes, measure
from .worker import Worker
from .workloads import COMPILED, GPU_PEER, PEER, PEER_KEEPING, PEERS, Cell, peer_of

FOCUS_BATCH, FOCUS_L = 8, 197
"""Where variants are compared, and what the checks are about: 197 tokens are an image of 224² in patches of 16."""
LAYOUTS = ("channel-last", "token-last")
"""In which dimension of (batch, D, L) neighbours in memory lie: D, as a linear layer leaves it, or L."""


@dataclass(frozen=True)
class Patience:
    """How much time a measurement may take, in seconds."""

    ours: float
    """A cell of ours whose single call takes longer is left out; the same of the peers, and of all others."""
    peer: float
    others: float
    per_cell: float
    """Slow cells take part in fewer rounds, in three at least: about this much of calls."""
    per_turn: float
    """Fast cells are called again and again at each turn: about this much of calls."""
    per_party: float
    """The slower ones as well, three times if this is enough for all that are called in turns."""

    def per_call(self, backend: str) -> float:
        """Ratios rest on ours and the peer; the rest is for scale."""
        return self.peer if backend in PEERS else self.ours if backend in ("native", "triton") else self.others


PATIENT = Patience(ours=8.0, peer=8.0, others=1.5, per_cell=6.0, per_turn=0.05, per_party=1.0)
QUICK = Patience(ours=1.0, peer=1.5, others=0.15, per_cell=1.0, per_turn=0.02, per_party=0.0)

_SHORT = 64  # tokens, quick for any backend


class Scans:
    """A result of this benchmark, and what follows from it."""

    def __init__(self, result: Result) -> None:
        self.result, self.options = result, result.options
        self.timings = {case: timing for case, timing in result.timings.items() if isinstance(case, Cell)}
        self.skipped = {case: reason for case, reason in result.skipped.items() if isinstance(case, Cell)}
        self.limits = {case.name: timing for case, timing in result.timings.items() if isinstance(case, Limit)}

    def limit(self, name: str) -> float:
        """How much of its work the machine does in a second."""
        return machine.WORK[name] / self.limits[name].median

    def times_faster_than_peer(self, cell: Cell) -> float | None:
        """How many of the cell fit into the time of the peer's cell."""
        found = self.result.ratio(peer_of(cell), cell)
        return found.median if found else None

    @property
    def _stated(self) -> bool:
        """Whether rates and promises are about what was measured."""
        return self.options.device == "cpu" and not self.options.levels

    def rates(self) -> list[Rate]:
        """How the native forward pass of every rule stands to the limits, at the shape of the focus."""
        cells = of_rules(focus(self.options), self.options) if self._stated else []
        gemm, copy = (self.limit(name) for name in (machine.GEMM, machine.COPY))
        return [machine.rate(cell, self.timings[cell].median, gemm, copy) for cell in cells if cell in self.timings]

    def checks(self) -> list[Check]:
        """The promises, where this run has what they are about."""
        center, rules = focus(self.options), self.options.discretizations
        return check_all(center, rules, self.timings.get, self.limits[machine.GEMM]) if self._stated else []

    def findings(self) -> dict[str, Any]:
        """As plain data."""
        gemm, copy = self.limit(machine.GEMM), self.limit(machine.COPY)
        return {
            "shape": {"D": workloads.D, "N": workloads.N},
            "limits": {"gemm_flop_per_second": gemm, "copy_bytes_per_second": copy},
            "rates": [asdict(rate) for rate in self.rates()],
        }

    def of_case(self, case: Case) -> dict[str, Any]:
        if not isinstance(case, Cell):
            return {}
        return {f"times_faster_than_{peer_of(case).backend}": self.times_faster_than_peer(case)}


def focus(options: Options) -> Cell:
    """Our forward pass at the shape where variants are compared: of the first rule."""
    batch = FOCUS_BATCH if FOCUS_BATCH in options.batch_sizes else options.batch_sizes[-1]
    L = min(options.lengths, key=lambda length: abs(length - FOCUS_L))
    backend, rule = "native" if options.device == "cpu" else "triton", options.discretizations[0]
    kind: dict[str, Any] = {name: getattr(options, name) for name in ("dtype", "layout", "threads", "device")}
    return Cell(backend, rule, batch, L, backward=False, **kind)


def variants(cell: Cell) -> dict[str, Cell]:
    """The same work under another condition."""
    other_layout = LAYOUTS[1 - LAYOUTS.index(cell.layout)]
    other_dtype = "bfloat16" if cell.dtype == "float32" else "float32"
    one_thread = {"one thread": replace(cell, threads=1)} if cell.device == "cpu" and cell.threads > 1 else {}
    return {
        "all fused": replace(cell, fused=True),
        other_dtype: replace(cell, dtype=other_dtype),
        other_layout: replace(cell, layout=other_layout),
        **one_thread,
    }


def of_rules(cell: Cell, options: Options) -> list[Cell]:
    """The same with every rule."""
    return [replace(cell, discretization=discretization) for discretization in options.discretizations]


def cells(options: Options) -> list[Cell]:
    """Every cell, those that are compared with each other close together."""
    found: list[Cell] = []
    center = focus(options)
    if options.levels:
        return [cell for table in level_cells(options) for row in table.values() for cell in row.values()]
    for batch in options.batch_sizes:
        for L in options.lengths:
            for backward in (False, True):
                base = replace(center, batch=batch, L=L, backward=backward)
                own = of_rules(base, options)
                peer = peer_of(base)
                fused = replace(base, fused=True)
                found += [*own, fused, peer, peer_of(fused), replace(peer, backend=PEER_KEEPING)]
                found += [replace(cell, backend="reference") for cell in own]
                if L <= workloads.LONGEST_COMPILED:
                    found.append(replace(base, backend=COMPILED))
                if (batch, L) == (center.batch, center.L):
                    found += [variant for cell in own for variant in variants(cell).values()]
    wanted = {*options.backends, *([PEER_KEEPING] if PEER in options.backends else [])}
    return [cell for cell in dict.fromkeys(found) if cell.backend in wanted]


def level_cells(options: Options) -> list[dict[str, dict[str, Cell]]]:
    """The cells that compare instruction sets: a table for each direction and number of threads, by rule and level."""
    return [
        {
            cell.discretization: {level: replace(cell, level=level) for level in options.levels}
            for cell in of_rules(replace(focus(options), backward=backward, threads=threads), options)
        }
        for backward in (False, True)
        for threads in sorted({1, options.threads})
    ]


def run(options: Options, command: str, report: Report) -> Result:
    """Measure everything that is worth its time."""
    patience = QUICK if options.quick else PATIENT
    facts = machine.describe(options.device, peer_of(focus(options)).backend)

    def refuse(case: Case, known: Mapping[Case, float], processes: Processes) -> str | None:
        assert isinstance(case, Cell)
        return (
            _impossible(case)
            or workloads.too_large(workloads.needed_bytes(case), case.device, usable=0.5)
            or _too_slow(case, known, processes[process_of(case, options)], patience.per_call(case.backend))
        )

    plan = Plan(
        cases=cells(options),
        process=lambda case: process_of(case, options),
        rounds=options.rounds,
        parties=lambda expected, rounds: parties(expected, rounds, options, patience),
        refuse=refuse,
        # torch.compile, and a peer that may be installed without its kernels
        may_fail=lambda case: case.compiled or (isinstance(case, Cell) and case.backend == GPU_PEER),
    )
    found = measure(plan, report)
    compiled = [seconds for case, seconds in found.first.items() if case.compiled]
    notes = {"compile_seconds": max(compiled, default=None)}
    return found.result("scan", command, options, facts, notes=notes)


def process_of(case: Case, options: Options) -> Process:
    """One for each backend, because the heap that one leaves behind changes the speed of another.

    The limits of the machine are measured where the focus is, which they are compared with.
    """
    backend = (case if isinstance(case, Cell) else focus(options)).backend
    return Process(backend, tuple(workloads.ENVIRONMENTS.get(backend, {}).items()))


def parties(expected: Mapping[Case, float], rounds: int, options: Options, patience: Patience) -> list[Party]:
    """The cells of one shape and backend together, and with them the limits of the machine where they are compared.

    With the long cells go those that a token of them is compared with.
    """
    center = focus(options)
    groups: dict[tuple[object, ...], list[Case]] = {}
    for cell in expected:
        assert isinstance(cell, Cell)
        group = groups.setdefault((cell.backend, cell.batch, cell.L, cell.backward), [])
        group.append(cell)
        short = replace(cell, L=center.L)
        if cell.L == LONG != center.L and cell.backend == center.backend and short in expected:
            group.append(short)
    where = center.backend, center.batch, center.L, center.backward
    groups.setdefault(where if where in groups else (), []).extend(limit_cases(options))
    return [_party(group, expected, rounds, patience) for group in groups.values()]


def _party(group: Sequence[Case], expected: Mapping[Case, float], rounds: int, patience: Patience) -> Party:
    members = sorted(group, key=_condition)  # stable: neighbours stay neighbours
    calls = [expected[case] for case in members if case in expected]
    return Party(
        members=tuple(members),
        turns=min(rounds, max(3, int(patience.per_cell / max(calls)))) if calls else rounds,
        seconds=max(patience.per_turn * len(members), min(patience.per_party, 3 * sum(calls))),
    )


def _condition(case: Case) -> tuple[object, ...]:
    """What calls in a row should have in common, so that each finds threads and tensors as the one before left them."""
    return (-case.threads, case.dtype, case.layout, case.fused) if isinstance(case, Cell) else (-case.threads,)


def limit_cases(options: Options) -> list[Limit]:
    names = (machine.GEMM, machine.COPY)
    limits = [Limit(name, device=options.device, threads=options.threads) for name in names]
    one_thread = options.device == "cpu" and options.threads > 1
    return [*limits, *([Limit(machine.GEMM_ONE_THREAD, threads=1)] if one_thread else [])]


def _impossible(cell: Cell) -> str | None:
    """Why this backend cannot run the cell at all."""
    reason = workloads.missing(cell.backend)
    if not reason and cell.backend in BACKENDS:
        return BACKENDS[cell.backend].refuses(torch.device(cell.device), DISCRETIZATIONS[cell.discretization])
    return reason


def _too_slow(cell: Cell, known: Mapping[Case, float], timer: Worker, allowed: float) -> str | None:
    """Told by the longest shorter sequence that is known; if none is, by one short enough to try."""
    cells = (c for c in known if isinstance(c, Cell))
    shorter = {c: known[c] for c in cells if c.L < cell.L and replace(c, L=cell.L) == cell}
    if not shorter and cell.L > _SHORT:
        probe = replace(cell, L=_SHORT)
        shorter = {probe: timer.ask(worker.first_calls, probe)[1]}
    if not shorter:
        return None
    nearest = max(shorter, key=lambda c: c.L)
    predicted = shorter[nearest] * cell.L / nearest.L
    if predicted <= allowed:
        return None
    return f"one call would take about {predicted:.1f} s; more than {allowed:g} s are not spent on it"
