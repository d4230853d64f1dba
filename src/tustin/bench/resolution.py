"""Vision Mamba against DeiT as images grow: time and memory of one image, and where the two lines cross."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .. import __version__
from ..study.tables import NOTHING, Table
from . import machine, measuring, pairing
from .inference import describe, today
from .inference_facts import case_facts, case_reasons, ratio_facts
from .inference_tables import how, memory_text
from .measuring import Measured, Report
from .models import PEERS, Candidate, Case
from .pairing import CONFIDENCE, Ratio
from .report import number

SIZES = (224, 384, 512, 768, 1024, 1248)


@dataclass(frozen=True)
class Options:
    """One run."""

    model: str
    discretization: str
    sizes: tuple[int, ...]
    device: str
    threads: int
    rounds: int | None


@dataclass(frozen=True)
class Result:
    """All that one run found out."""

    options: Options
    command: str
    date: str
    machine: dict[str, Any]
    measured: Measured

    @property
    def ours(self) -> Candidate:
        return Candidate(self.options.model, self.options.discretization)

    @property
    def peer(self) -> Candidate:
        return Candidate(PEERS[self.options.model], None)

    def case(self, candidate: Candidate, size: int) -> Case:
        return Case(candidate, 1, size, False, self.options.device, self.options.threads)

    def seconds(self, candidate: Candidate) -> dict[int, float]:
        """Medians by size."""
        found = {size: self.measured.seconds.get(self.case(candidate, size)) for size in self.options.sizes}
        return {
            size: statistics.median(seconds for calls in rounds.values() for seconds in calls)
            for size, rounds in found.items()
            if rounds
        }

    def peaks(self, candidate: Candidate) -> dict[int, int]:
        """Bytes by size."""
        cases = {size: self.case(candidate, size) for size in self.options.sizes}
        return {size: self.measured.peaks[case] for size, case in cases.items() if case in self.measured.peaks}

    def peer_by_ours(self, size: int) -> Ratio | None:
        """Time of the peer by ours, round by round."""
        series = self.measured.seconds
        peer, ours = (series.get(self.case(candidate, size), {}) for candidate in (self.peer, self.ours))
        return pairing.paired(peer, ours)


def run(options: Options, command: str, report: Report) -> Result:
    """Measure both models at every size."""
    empty = Result(options, command, today(), describe(options.device, [options.discretization]), Measured())
    cases = [empty.case(candidate, size) for size in options.sizes for candidate in (empty.ours, empty.peer)]
    measured = measuring.measure(cases, options.rounds, report)
    return Result(options, command, empty.date, empty.machine, measured)


def crossing(ours: Mapping[int, float], peer: Mapping[int, float]) -> tuple[int, int] | None:
    """The sizes between which ours begins to need less and does from then on; (0, size) if it does from the first."""
    sizes = [size for size in ours if size in peer]
    ahead = [ours[size] < peer[size] for size in sizes]
    if not ahead or not ahead[-1]:
        return None
    first = len(ahead) - next((i for i, better in enumerate(reversed(ahead)) if not better), len(ahead))
    return (sizes[first - 1] if first else 0), sizes[first]


# --- for people and programs ------------------------------------------------------------------------------------------


def summary(result: Result) -> str:
    """Where and how it was measured."""
    options = result.options
    return (
        f"{machine.where(result.machine, options.threads)}; {result.date}. "
        f"{options.model} with {options.discretization} and {result.peer.model}, "
        f"inference of one image, float32; {how(result.measured, options.device)}"
        f"{machine.busy(result.machine)}."
    )


def conclusions(result: Result) -> list[str]:
    """Where the lines cross, in a sentence each; of the times, where their ratio leaves no doubt."""
    ratios = {size: ratio for size in result.options.sizes if (ratio := result.peer_by_ours(size))}
    at_least = {size: ratio.interval()[0] or ratio.median for size, ratio in ratios.items()}  # 0: too few rounds to say
    kinds: tuple[tuple[str, Mapping[int, float], Mapping[int, float]], ...] = (
        ("is faster", dict.fromkeys(at_least, 1.0), at_least),
        ("needs less memory", result.peaks(result.ours), result.peaks(result.peer)),
    )
    ours, peer = result.options.model, result.peer.model
    return [
        _sentence(f"{ours} {verb} than {peer}", crossing(own, other)) for verb, own, other in kinds if own and other
    ]


def _sentence(claim: str, found: tuple[int, int] | None) -> str:
    if found is None:
        return f"At the largest size it is not so that {claim}."
    before, size = found
    return f"From {size} px on {claim} ({f'not yet at {before} px' if before else 'the smallest size measured'})."


def tables(result: Result) -> list[Table]:
    """One table: a row for each size."""
    ours, peer = result.ours, result.peer
    times, peaks = {c: result.seconds(c) for c in (ours, peer)}, {c: result.peaks(c) for c in (ours, peer)}
    rows = []
    for size in result.options.sizes:
        ratio = result.peer_by_ours(size)
        tokens = (size // 16) ** 2 + 1
        ms = [number(1e3 * times[c][size]) if size in times[c] else NOTHING for c in (ours, peer)]
        mib = [memory_text(peaks[c].get(size)) for c in (ours, peer)]
        rows.append((f"{size} px", str(tokens), *ms, _ratio(ratio), *mib))
    names = result.options.discretization, result.peer.model.split("_patch")[0]
    header = ("image", "tokens", f"{names[0]} (ms)", f"{names[1]} (ms)", f"{names[1]} : {names[0]}")
    return [
        Table(
            "resolution",
            "One image, larger and larger",
            (*header, *(f"{name} (MiB)" for name in names)),
            rows,
            f"Medians; the ratio is that of the times within a round, with its {CONFIDENCE:.0%} interval. Memory: what "
            "a call needs beside weights and image, to about 2 MiB.",
        )
    ]


def _ratio(ratio: Ratio | None) -> str:
    if ratio is None:
        return NOTHING
    low, high = ratio.interval()
    return f"{ratio.median:.2f}" + (f" ({low:.2f} to {high:.2f})" if high < float("inf") else "")


def as_facts(result: Result) -> dict[str, Any]:
    """The result as plain data."""
    ratios = {size: result.peer_by_ours(size) for size in result.options.sizes}
    return {
        "tustin": __version__,
        "benchmark": "resolution",
        "command": result.command,
        "date": result.date,
        "options": asdict(result.options),
        "machine": result.machine,
        "rounds": result.measured.rounds,
        "cases": [case_facts(case, result.measured) for case in result.measured.seconds],
        "skipped": case_reasons(result.measured),
        "peer_by_ours": {size: ratio_facts(ratio) for size, ratio in ratios.items() if ratio},
        "conclusions": conclusions(result),
    }
