"""Vision Mamba against DeiT as images grow: time and memory of one image, and where the two lines cross."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

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

Pairs = dict[int, tuple[ModelCase, ModelCase]]
PROMISED_SIZE = 1248
"""Side of the image about which something is promised."""


class Growth:
    """A result over the sizes of an image: ours, with one rule, and the peer; pairs have ours first."""

    def __init__(self, result: Result) -> None:
        cases, timings = pairs(result.options), result.timings
        self.sizes, self.discretization = result.options.sizes, result.options.discretizations[0]
        self.ours, self.peer = result.options.model, PEERS[result.options.model]
        medians = {case: timing.median for case, timing in timings.items()}
        self.seconds, self.peaks = _by_size(cases, medians), _by_size(cases, result.peaks)
        ratios = {size: round_ratio(timings.get(peer), timings.get(ours)) for size, (ours, peer) in cases.items()}
        self.ratios = {size: ratio for size, ratio in ratios.items() if ratio}
        """Time of the peer by ours, round by round."""


def _by_size(cases: Pairs, found: Mapping[Case, float]) -> tuple[dict[int, float], dict[int, float]]:
    """What is known of ours and of the peer."""
    ours, peer = ({size: found[pair[i]] for size, pair in cases.items() if pair[i] in found} for i in (0, 1))
    return ours, peer


def pairs(options: Options) -> Pairs:
    """Ours and the peer at each size."""
    ours, peer = Candidate(options.model, options.discretizations[0]), Candidate(PEERS[options.model], None)
    own = {size: ModelCase(ours, 1, size, device=options.device, threads=options.threads) for size in options.sizes}
    return {size: (case, replace(case, candidate=peer)) for size, case in own.items()}


def run(options: Options, command: str, report: Report) -> Result:
    """Measure both models at every size."""
    found = pairs(options)
    cases = [case for pair in found.values() for case in pair]
    return model_plan.run("resolution", command, options, cases, found[max(options.sizes)][0], report)


def crossing(ours: Mapping[int, float], peer: Mapping[int, float]) -> tuple[int, int] | None:
    """The sizes between which ours begins to need less and does from then on; (0, size) if it does from the first."""
    sizes = [size for size in ours if size in peer]
    first = max((place + 1 for place, size in enumerate(sizes) if ours[size] >= peer[size]), default=0)
    if first == len(sizes):
        return None
    return (sizes[first - 1] if first else 0), sizes[first]


# --- for people and programs ------------------------------------------------------------------------------------------


def outcome(result: Result) -> Outcome:
    """The result in all its forms."""
    from .plots import draw_resolution

    growth = Growth(result)
    verdicts, sentences = checks(growth), conclusions(growth)
    models = f"{growth.ours} with {growth.discretization} and {growth.peer}"
    return Outcome(
        result=result,
        summary=f"{result.where} {models}, inference of one image, float32; {result.how}.",
        tables=[table(growth), *checks_tables(verdicts), *shares_tables(result, "Where the time goes")],
        left_out=left_out(result),
        remarks=sentences,
        findings={"peer_by_ours": {s: ratio.facts() for s, ratio in growth.ratios.items()}, "conclusions": sentences},
        checks=verdicts,
        draw=lambda: draw_resolution(growth),
    )


def conclusions(growth: Growth) -> list[str]:
    """Where the lines cross, in a sentence each; of the times, where their ratio leaves no doubt."""
    at_least = {size: ratio.interval()[0] or ratio.median for size, ratio in growth.ratios.items()}  # 0: too few rounds
    sentences = []
    for verb, ours, peer in (
        ("is faster", dict.fromkeys(at_least, 1.0), at_least),
        ("needs less memory", *growth.peaks),
    ):
        claim, found = f"{growth.ours} {verb} than {growth.peer}", crossing(ours, peer)
        if found:
            before = f"not yet at {found[0]} px" if found[0] else "the smallest size measured"
            sentences.append(f"From {found[1]} px on {claim} ({before}).")
        elif ours and peer:
            sentences.append(f"Not even at the largest size is it true that {claim}.")
    return sentences


def checks(growth: Growth) -> list[Check]:
    """What is promised about a large image; nothing if it was not measured."""
    if not (ratio := growth.ratios.get(PROMISED_SIZE)):
        return []
    ours, peer = (peaks.get(PROMISED_SIZE) for peaks in growth.peaks)
    name, rule = f"one image of {PROMISED_SIZE} px", growth.discretization
    return [
        worst(f"{name}, time of {growth.peer} : {rule}", "≥", 2.8, {rule: ratio}),
        worst(
            f"{name}, memory of {rule} : {growth.peer}",
            "≤",
            1.0,
            {rule: Ratio((ours / peer,))} if ours and peer else {},
        ),
    ]


def table(growth: Growth) -> Table:
    """A row for each size."""
    rows = []
    for size in growth.sizes:
        ms = [number(1e3 * known[size]) if size in known else NOTHING for known in growth.seconds]
        ratio = growth.ratios[size].text(2) if size in growth.ratios else NOTHING
        rows.append(
            (f"{size} px", str((size // 16) ** 2 + 1), *ms, ratio, *(memory_text(p.get(size)) for p in growth.peaks))
        )
    ours, peer = growth.discretization, growth.peer.split("_patch")[0]
    return Table(
        "resolution",
        "One image of growing size",
        ("image", "tokens", f"{ours} (ms)", f"{peer} (ms)", f"{peer} : {ours}", f"{ours} (MiB)", f"{peer} (MiB)"),
        rows,
        f"Medians. The ratio is formed within a round; in brackets its {CONFIDENCE:.0%} interval. Memory: what "
        "a call needs in addition to the weights and the image, to about 2 MiB.",
    )
