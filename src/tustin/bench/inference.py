"""Vision Mamba with every rule, beside its peers, over batch sizes: inference, or by the same means training."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..report.measurement import Options, Result
from ..report.speed import BASELINE, Candidate, ModelCase, Speed
from ..report.speed_tables import conclusions, grid, summary
from ..report.table import Table, number
from ..report.terminal import Report
from ..report.timing import round_ratio
from . import model_plan, training_tables
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
        found += [Candidate(peer, None), *([Candidate(peer, None, compiled=True)] if options.compile else [])]
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
    verdicts = checks(speed)
    return Outcome(
        result=result,
        summary=summary(speed),
        tables=[
            *(training_tables.tables(speed, verdicts) if speed.training else tables(speed, verdicts)),
            *shares_tables(result, "Where the time goes"),
        ],
        left_out=left_out(result),
        findings={
            "fastest": {batch: speed.standing(batch).facts() for batch in speed.batch_sizes},
            "noise": {batch: speed.noise(batch) for batch in speed.batch_sizes},
            "scenarios": speed.scenarios(),
        },
        checks=verdicts,
        of_case=lambda case: _times(speed, case) if isinstance(case, ModelCase) else {},
        draw=None if speed.training else lambda: draw_inference(speed),
    )


def tables(speed: Speed, verdicts: Sequence[Check]) -> list[Table]:
    """Everything that was found out, the conclusions first."""
    return [
        *conclusions(speed),
        grid(
            speed,
            "latency",
            "Latency (ms per image)",
            lambda case, t: f"{number(1e3 * t.median / case.batch)} ({number(1e3 * t.p95 / case.batch)})",
            "Median, and in brackets the 95th percentile of the calls.",
        ),
        grid(
            speed,
            "throughput",
            "Throughput (images/s)",
            lambda case, timing: number(case.batch / timing.median),
            "From the median time.",
        ),
        memory_table(speed),
        *checks_tables(verdicts),
    ]


def memory_table(speed: Speed) -> Table:
    """Of the candidates whose memory was measured."""
    peaks = speed.result.peaks
    table = grid(
        speed,
        "memory",
        "Peak memory (MiB)",
        lambda case, timing: memory_text(peaks.get(case)),
        "Memory that one call needs in addition to the weights and the images, measured in a separate process, to "
        "about 2 MiB.",
    )
    measured = {case.candidate.name for case in speed.cases if case in peaks}
    return replace(table, rows=[row for row in table.rows if row[0] in measured])


def checks(speed: Speed) -> list[Check]:
    """What is promised about the throughput of every rule, relative to the baseline's."""
    found = []
    for batch in speed.batch_sizes:
        gains = {
            name: ratio.inverse()
            for name in speed.result.options.discretizations[1:]
            if (ratio := speed.to_baseline(speed.of_discretization(name, batch)))
        }
        claim = f"batch {batch}, throughput : {BASELINE}'s"
        if speed.training:
            bil = {name: gain for name, gain in gains.items() if name == "bil"}
            found.append(worst(f"{claim}, bil", "≥", 1.0, bil, digits=3))
        bound = 0.95 if speed.training else 0.97
        found.append(worst(f"{claim}, worst rule", "≥", bound, gains, digits=3))
        if batch == PROMISED_BATCH and (peer := PEERS.get(speed.result.options.model)):
            own, theirs = speed.of_discretization("bil", batch), speed.case(Candidate(peer, None), batch)
            ratio = round_ratio(speed.timing(own), speed.timing(theirs))
            limit = 1.6 if speed.training else 1.3
            found.append(worst(f"batch {batch}, time : {peer}'s, bil", "≤", limit, {"bil": ratio}))
    return [check for check in found if check.measured is not None]


def _times(speed: Speed, case: ModelCase) -> dict[str, Any]:
    timing, ratio = speed.result.timings[case], speed.to_baseline(case)
    per_image = 1e3 / case.batch
    return {
        "name": case.candidate.name,
        "milliseconds_per_image": {"median": per_image * timing.median, "p95": per_image * timing.p95},
        "images_per_second": case.batch / timing.median,
        "time_by_baseline": ratio.facts() if ratio else None,
    }
