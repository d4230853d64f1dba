"""MambaVision-T as it comes from PyPI, on our stand-in for mamba_ssm: our scan beside `selective_scan_ref`.

Both are the same model with the same weights, which are random; what differs is the scan that its mixers call.
"""

from __future__ import annotations

from typing import Any

from ..report.measurement import Options, Result
from ..report.table import Table
from ..report.terminal import Report
from ..report.timing import lap_ratio
from . import machine
from .measure import Plan, Process, measure, side_by_side
from .outcome import Outcome, left_out
from .stand_in import OURS, SIZE, SLOW, MambaVisionCase


def run(options: Options, command: str, report: Report) -> Result:
    """Ours and the slow one in turns: inference of 1 and of 8 images, and a training step of 8."""
    machine.needs(("mambavision", "einops"), "pip install --no-deps mambavision einops")
    facts = machine.describe("cpu", "mambavision")
    process = Process("mambavision")
    cases = [
        MambaVisionCase(scan=scan, batch=batch, training=training, threads=options.threads)
        for batch, training in ((1, False), (8, False), (8, True))
        for scan in (OURS, SLOW)
    ]

    plan = Plan(
        cases=cases,
        process=lambda case: process,
        rounds=options.rounds,
        parties=side_by_side(0.0),
    )
    return measure(plan, report).result("mambavision", command, options, facts)


def outcome(result: Result) -> Outcome:
    """The result in all its forms."""
    return Outcome(
        result=result,
        summary=f"{result.where} MambaVision-T, float32, images of {SIZE} x {SIZE}; {result.how}.",
        tables=[_times(result)],
        left_out=left_out(result),
    )


def _times(result: Result) -> Table:
    pairs: dict[str, dict[str, Any]] = {}
    for case, timing in result.timings.items():
        assert isinstance(case, MambaVisionCase)
        pairs.setdefault(case.what, {})[case.scan] = timing
    rows = [
        (
            what,
            *(f"{times[scan].median * 1e3:.0f} ±{times[scan].spread:.0%}" for scan in (SLOW, OURS)),
            ratio.text(1),
        )
        for what, times in pairs.items()
        if (ratio := lap_ratio(times.get(SLOW), times.get(OURS)))
    ]
    title = "MambaVision-T on our mamba_ssm (ms per call)"
    note = "Median and spread; ratio: how many times faster the whole model is with our scan, with its interval."
    return Table("mambavision", title, ("", SLOW, "ours", "ratio"), rows, note)
