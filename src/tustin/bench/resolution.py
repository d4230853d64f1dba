"""Vision Mamba against DeiT as images grow: time and memory of one image, and where the two lines cross."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..report.measurement import Options, Result
from ..report.speed import Candidate, ModelCase
from ..report.table import NOTHING, Table, number
from ..report.terminal import Report
from ..report.timing import CONFIDENCE, Ratio, round_ratio
from . import model_plan
from .checks import Check, checks_table, worst
from .memory import memory_text
from .models import PEERS, shares_tables
from .outcome import Outcome, left_out

SIZES = (224, 384, 512, 768, 1024, 1248)
PROMISED_SIZE = 1248
"""Side of the image about which something is promised."""


@dataclass(frozen=True)
class Growth:
    """A result over the sizes of an image: ours, with one rule, and the peer."""

    result: Result

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.result.options.sizes

    @property
    def discretization(self) -> str:
        return self.result.options.discretizations[0]

    @property
    def ours(self) -> Candidate:
        return candidates(self.result.options)[0]

    @property
    def peer(self) -> Candidate:
        return candidates(self.result.options)[1]

    def seconds(self, candidate: Candidate) -> dict[int, float]:
        """Medians by size."""
        found = {size: self.result.timings.get(self._case(candidate, size)) for size in self.sizes}
        return {size: timing.median for size, timing in found.items() if timing}

    def peaks(self, candidate: Candidate) -> dict[int, int]:
        """Bytes by size."""
        found = {size: self.result.peaks.get(self._case(candidate, size)) for size in self.sizes}
        return {size: peak for size, peak in found.items() if peak is not None}

    def peer_by_ours(self, size: int) -> Ratio | None:
        """Time of the peer by ours, round by round."""
        peer, ours = (self.result.timings.get(self._case(candidate, size)) for candidate in (self.peer, self.ours))
        return round_ratio(peer, ours)

    def _case(self, candidate: Candidate, size: int) -> ModelCase:
        return make_case(self.result.options, candidate, size)


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
        tables=[
            table(growth),
            *([checks_table(verdicts)] if verdicts else []),
            *shares_tables(result, "Where the time goes"),
        ],
        left_out=left_out(result),
        remarks=conclusions(growth),
        findings={
            "peer_by_ours": {size: ratio.facts() for size, ratio in ratios.items() if ratio},
            "conclusions": conclusions(growth),
            "checks": [check.facts() for check in verdicts],
        },
        draw=lambda: draw_resolution(growth),
    )


def conclusions(growth: Growth) -> list[str]:
    """Where the lines cross, in a sentence each; of the times, where their ratio leaves no doubt."""
    ratios = {size: ratio for size in growth.sizes if (ratio := growth.peer_by_ours(size))}
    at_least = {size: ratio.interval()[0] or ratio.median for size, ratio in ratios.items()}  # 0: too few rounds to say
    kinds: tuple[tuple[str, Mapping[int, float], Mapping[int, float]], ...] = (
        ("is faster", dict.fromkeys(at_least, 1.0), at_least),
        ("needs less memory", growth.peaks(growth.ours), growth.peaks(growth.peer)),
    )
    ours, peer = growth.ours.model, growth.peer.model
    return [
        _sentence(f"{ours} {verb} than {peer}", crossing(own, other)) for verb, own, other in kinds if own and other
    ]


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


def _sentence(claim: str, found: tuple[int, int] | None) -> str:
    if found is None:
        return f"Not even at the largest size is it true that {claim}."
    before, size = found
    return f"From {size} px on {claim} ({f'not yet at {before} px' if before else 'the smallest size measured'})."


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
