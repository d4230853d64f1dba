"""Vision Mamba with every rule, beside its peers, over batch sizes: inference, or by the same means training."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..report.measurement import Case, Options, Result
from ..report.paper_figures import PAPER, SOURCE
from ..report.speed import BASELINE, Candidate, ModelCase, Speed
from ..report.speed_tables import A100, change_text, conclusions, grid, summary
from ..report.table import NOTHING, Table, number, signed
from ..report.terminal import Report
from ..report.timing import CONFIDENCE, round_ratio
from . import model_plan
from .checks import Check, checks_tables, worst
from .memory import memory_text
from .models import PEERS, own_size, shares_tables
from .outcome import Outcome, left_out

REFERENCE_UP_TO = 4
"""Images at once for which the reference backend is measured."""
PROMISED_BATCH = 8
"""Images at once for which something is promised about the peer."""


def candidates(options: Options, training: bool = False) -> list[Candidate]:
    """The rules, the baseline once more, then the peers."""
    rules = [Candidate(options.model, discretization) for discretization in options.discretizations]
    found = [*rules, replace(rules[0], again=True)]
    if not training and model_plan.backends(options)[options.discretizations[0]] != "reference":
        found.append(replace(rules[0], backend="reference"))
    if options.compile:
        found.append(replace(rules[0], compiled=True))
    if peer := PEERS.get(options.model):
        found += [Candidate(peer, None, compiled=compiled) for compiled in (False, True)[: 1 + options.compile]]
    return found


def cases(options: Options, training: bool = False) -> list[ModelCase]:
    """Every case, from the smallest batch on."""
    size = own_size(options.model)
    return [
        ModelCase(candidate, batch, size, training, device=options.device, threads=options.threads)
        for batch in options.batch_sizes
        for candidate in candidates(options, training)
        if candidate.backend != "reference" or batch <= REFERENCE_UP_TO
    ]


def run(options: Options, command: str, report: Report, training: bool = False) -> Result:
    """Measure inference, or training steps; the rules have the baseline first."""
    name, planned = "train" if training else "inference", cases(options, training)
    return model_plan.run(name, command, options, planned, profiled(planned), report)


run_training = functools.partial(run, training=True)


def profiled(cases: Sequence[ModelCase]) -> ModelCase:
    """The case that is also profiled: bil's if it is among the rules, of about eight images."""
    own = [case for case in cases if case.candidate.discretization]
    return min(own, key=lambda case: (case.candidate.discretization != "bil", abs(case.batch - PROMISED_BATCH)))


def outcome(result: Result) -> Outcome:
    """The result of either in all its forms."""
    from .plots import draw_inference

    speed = Speed(result)
    verdicts, batches = checks(speed), speed.batch_sizes
    found = [_training_table(speed, batch) for batch in batches] if speed.training else tables(speed)
    return Outcome(
        result=result,
        summary=summary(speed),
        tables=[*found, *checks_tables(verdicts), *shares_tables(result, "Where the time goes")],
        left_out=left_out(result),
        findings={
            "fastest": {batch: speed.standing(batch).facts() for batch in batches},
            "noise": {batch: speed.noise(batch) for batch in batches},
            "scenarios": speed.scenarios(),
        },
        checks=verdicts,
        of_case=lambda case: _facts(speed, case),
        draw=None if speed.training else lambda: draw_inference(speed),
    )


def _facts(speed: Speed, case: Case) -> dict[str, Any]:
    if not isinstance(case, ModelCase):
        return {}
    timing, ratio, per_image = speed.result.timings[case], speed.to_baseline(case), 1e3 / case.batch
    return {
        "name": case.candidate.name,
        "milliseconds_per_image": {"median": per_image * timing.median, "p95": per_image * timing.p95},
        "images_per_second": case.batch / timing.median,
        "time_by_baseline": ratio.facts() if ratio else None,
    }


def tables(speed: Speed) -> list[Table]:
    """What was found out about inference, the conclusions first."""
    peaks = speed.result.peaks
    latency = grid(
        speed,
        "latency",
        "Latency (ms per image)",
        lambda case, t: f"{number(1e3 * t.median / case.batch)} ({number(1e3 * t.p95 / case.batch)})",
        "Median, and in brackets the 95th percentile of the calls.",
    )
    throughput = grid(
        speed,
        "throughput",
        "Throughput (images/s)",
        lambda case, timing: number(case.batch / timing.median),
        "From the median time.",
    )
    memory = grid(
        speed,
        "memory",
        "Peak memory (MiB)",
        lambda case, timing: memory_text(peaks.get(case)),
        "Memory that one call needs in addition to the weights and the images, measured in a separate process, to "
        "about 2 MiB.",
    )
    measured = [row for row in memory.rows if {*row[1:]} != {NOTHING}]
    return [*conclusions(speed), latency, throughput, replace(memory, rows=measured)]


def _training_table(speed: Speed, batch: int) -> Table:
    """What a training step costs with each rule, beside the paper's costs."""
    header = ("", "ms per step", "images/s", "peak memory (MiB)", f"throughput against {BASELINE}", "beyond noise")
    return Table(
        f"training-{batch}",
        f"Training steps, batch {batch}",
        (*header, f"{A100}: against {BASELINE}"),
        [(candidate.name, *_training_cells(speed, candidate, batch)) for candidate in speed.candidates],
        f"Against {BASELINE}: median over the rounds, and its {CONFIDENCE:.0%} interval; {BASELINE} again shows the "
        "noise. Memory: what a step needs in addition to the weights and the images, to about 2 MiB. The paper's "
        f"column is printed in {SOURCE} for CIFAR-100 and was not measured here.",
        frozenset({"beyond noise"}),
    )


def _training_cells(speed: Speed, candidate: Candidate, batch: int) -> list[str]:
    case = speed.case(candidate, batch)
    timing, ratio = speed.timing(case), speed.to_baseline(case)
    if not timing or ratio is None:
        return [NOTHING] * 6
    costs = [number(1e3 * timing.median), number(batch / timing.median), memory_text(speed.result.peaks.get(case))]
    against = [change_text(ratio.inverse()), "yes" if speed.differs_from_baseline(case) else "no"]
    if case == speed.of_discretization(BASELINE, batch):
        against = [NOTHING] * 2
    told = None if candidate.again else (PAPER["cifar100"].gains or {}).get(candidate.discretization or "")
    paper = f"{signed(told.throughput, 2)} %" if told and told.throughput is not None else NOTHING
    return [*costs, *against, paper]


def checks(speed: Speed) -> list[Check]:
    """What is promised about the throughput of every rule, relative to the baseline's."""
    found = []
    options, peer = speed.result.options, PEERS.get(speed.result.options.model)
    for batch in speed.batch_sizes:
        ratios = {name: speed.to_baseline(speed.of_discretization(name, batch)) for name in options.discretizations[1:]}
        gains = {name: ratio.inverse() for name, ratio in ratios.items() if ratio}
        claim, bound = f"batch {batch}, throughput : {BASELINE}'s", 0.95 if speed.training else 0.97
        if speed.training:
            found.append(worst(f"{claim}, bil", "≥", 1.0, {"bil": gains.get("bil")}, digits=3))
        found.append(worst(f"{claim}, worst rule", "≥", bound, gains, digits=3))
        if batch == PROMISED_BATCH and peer:
            own, theirs = speed.of_discretization("bil", batch), speed.case(Candidate(peer, None), batch)
            ratio = round_ratio(speed.timing(own), speed.timing(theirs))
            limit = 1.6 if speed.training else 1.3
            found.append(worst(f"batch {batch}, time : {peer}'s, bil", "≤", limit, {"bil": ratio}))
    return [check for check in found if check.measured is not None]
