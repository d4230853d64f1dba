"""Vision Mamba against DeiT as images grow: time and memory of one image, and where the two lines cross."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from ..report.measurement import Case, Options, Result
from ..report.speed import Candidate, ModelCase
from ..report.table import NOTHING, Table, number
from ..report.terminal import Report
from ..report.timing import CONFIDENCE, Ratio, round_ratio
from . import model_plan
from .checks import Check, checks_tables, worst
from .memory import memory_text
from .models import PEERS, shares_tables
from .outcome import Outcome, left_out

Found = TypeVar("Found")
PROMISED_SIZE = 1248
"""Side of the image about which something is promised."""


class Growth:
    """A result over the sizes of an image: ours, with one rule, and the peer."""

    def __init__(self, result: Result) -> None:
        self.result, self.sizes = result, result.options.sizes
        self.ours, self.peer = candidates(result.options)
        self.discretization = result.options.discretizations[0]

    def seconds(self, candidate: Candidate) -> dict[int, float]:
        """Medians by size."""
        timings = self._by_size(self.result.timings, candidate)
        return {size: timing.median for size, timing in timings.items()}

    def peaks(self, candidate: Candidate) -> dict[int, int]:
        """Bytes by size."""
        return self._by_size(self.result.peaks, candidate)

    def peer_by_ours(self, size: int) -> Ratio | None:
        """Time of the peer by ours, round by round."""
        peer, ours = (self._by_size(self.result.timings, one).get(size) for one in (self.peer, self.ours))
        return round_ratio(peer, ours)

    def _by_size(self, found: Mapping[Case, Found], candidate: Candidate) -> dict[int, Found]:
        cases = {size: make_case(self.result.options, candidate, size) for size in self.sizes}
        return {size: found[case] for size, case in cases.items() if case in found}


def candidates(options: Options) -> tuple[Candidate, Candidate]:
    """Ours and the peer."""
    return Candidate(options.model, options.discretizations[0]), Candidate(PEERS[options.model], None)


def make_case(options: Options, candidate: Candidate, size: int) -> ModelCase:
    return ModelCase(candidate, 1, size, device=options.device, threads=options.threads)


def run(options: Options, command: str, report: Report) -> Result:
    """Measure both models at every size."""
    cases = [make_case(options, candidate, size) for size in options.sizes for candidate in candidates(options)]
    largest = make_case(options, candidates(options)[0], max(options.sizes))
    return model_plan.run("resolution", command, options, cases, largest, report)


def crossing(ours: Mapping[int, float], peer: Mapping[int, float]) -> tuple[int, int] | None:
    """The sizes between which ours begins to need less and does from then on; (0, size) if it does from the first."""
    sizes = [size for size in ours if size in peer]
    ahead = [ours[size] < peer[size] for size in sizes]
    if not ahead or not ahead[-1]:
        return None
    first = len(ahead) - next((i for i, better in enumerate(reversed(ahead)) if not better), len(ahead))
    return (sizes[first - 1] if first else 0), sizes[first]


# --- for people and programs ------------------------------------------------------------------------------------------


def outcome(result: Result) -> Outcome:
    """The result in all its forms."""
    from .plots import draw_resolution

    growth = Growth(result)
    ratios = {size: growth.peer_by_ours(size) for size in growth.sizes}
    verdicts = checks(growth)
    models = f"{growth.ours.model} with {growth.discretization} and {growth.peer.model}"
    return Outcome(
        result=result,
        summary=f"{result.where} {models}, inference of one image, float32; {result.how}.",
        tables=[table(growth), *checks_tables(verdicts), *shares_tables(result, "Where the time goes")],
        left_out=left_out(result),
        remarks=conclusions(growth),
        findings={
            "peer_by_ours": {size: ratio.facts() for size, ratio in ratios.items() if ratio},
            "conclusions": conclusions(growth),
        },
        checks=verdicts,
        draw=lambda: draw_resolution(growth),
    )


def conclusions(growth: Growth) -> list[str]:
    """Where the lines cross, in a sentence each; of the times, where their ratio leaves no doubt."""
    ratios = {size: ratio for size in growth.sizes if (ratio := growth.peer_by_ours(size))}
    at_least = {size: ratio.interval()[0] or ratio.median for size, ratio in ratios.items()}  # 0: too few rounds to say
    memory = growth.peaks(growth.ours), growth.peaks(growth.peer)
    sentences = []
    for verb, ours, peer in (("is faster", dict.fromkeys(at_least, 1.0), at_least), ("needs less memory", *memory)):
        claim, found = f"{growth.ours.model} {verb} than {growth.peer.model}", crossing(ours, peer)
        if found:
            before = f"not yet at {found[0]} px" if found[0] else "the smallest size measured"
            sentences.append(f"From {found[1]} px on {claim} ({before}).")
        elif ours and peer:
            sentences.append(f"Not even at the largest size is it true that {claim}.")
    return sentences


def checks(growth: Growth) -> list[Check]:
    """What is promised about a large image; nothing if it was not measured."""
    ratio = growth.peer_by_ours(PROMISED_SIZE) if PROMISED_SIZE in growth.sizes else None
    if ratio is None:
        return []
    ours, peer = (growth.peaks(candidate).get(PROMISED_SIZE) for candidate in (growth.ours, growth.peer))
    name, rule = f"one image of {PROMISED_SIZE} px", growth.discretization
    memory = {rule: Ratio((ours / peer,))} if ours and peer else {}
    return [
        worst(f"{name}, time of {growth.peer.model} : {rule}", "≥", 2.8, {rule: ratio}),
        worst(f"{name}, memory of {rule} : {growth.peer.model}", "≤", 1.0, memory),
    ]


def table(growth: Growth) -> Table:
    """A row for each size."""
    both = growth.ours, growth.peer
    times, peaks = [growth.seconds(c) for c in both], [growth.peaks(c) for c in both]
    rows = []
    for size in growth.sizes:
        ratio = growth.peer_by_ours(size)
        tokens = (size // 16) ** 2 + 1
        ms = [number(1e3 * known[size]) if size in known else NOTHING for known in times]
        mib = [memory_text(known.get(size)) for known in peaks]
        rows.append((f"{size} px", str(tokens), *ms, ratio.text(2) if ratio else NOTHING, *mib))
    names = growth.discretization, growth.peer.model.split("_patch")[0]
    header = ("image", "tokens", f"{names[0]} (ms)", f"{names[1]} (ms)", f"{names[1]} : {names[0]}")
    return Table(
        "resolution",
        "One image of growing size",
        (*header, *(f"{name} (MiB)" for name in names)),
        rows,
        f"Medians. The ratio is formed within a round; in brackets its {CONFIDENCE:.0%} interval. Memory: what "
        "a call needs in addition to the weights and the image, to about 2 MiB.",
    )
