"""An exported Vision Mamba in onnxruntime, beside our own kernels and beside DeiT in onnxruntime."""

from __future__ import annotations

from typing import Any

from ..report.measurement import Case, Options, Result
from ..report.speed import ONNXRUNTIME, Candidate, ModelCase
from ..report.table import NOTHING, Table, number
from ..report.terminal import Report
from ..report.timing import CONFIDENCE, Ratio
from ..support.extras import insist_on
from . import machine
from .checks import Check, checks_tables, worst
from .measure import Plan, measure, side_by_side
from .model_plan import KEEP_MEMORY, MODELS, backends
from .models import PEERS
from .outcome import Outcome, left_out

BOUND, BOUND_AT = 8, (224, 8)
"""How many times our own time onnxruntime may take, at this size and batch."""
_TURN = 0.5
"""Seconds of a turn, where calls are quicker."""


def candidates(options: Options) -> tuple[Candidate, Candidate, Candidate]:
    """Ours, the same exported, and the peer exported."""
    model, rule = options.model, options.discretizations[0]
    return Candidate(model, rule), Candidate(model, rule, ONNXRUNTIME), Candidate(PEERS[model], None, ONNXRUNTIME)


def groups(options: Options) -> dict[tuple[int, int], list[ModelCase]]:
    """The candidates of each size and batch, which are measured together."""
    return {
        (size, batch): [ModelCase(who, batch, size, threads=options.threads) for who in candidates(options)]
        for size in options.sizes
        for batch in options.batch_sizes
    }


def run(options: Options, command: str, report: Report) -> Result:
    """All of them in turns."""
    insist_on("onnx")
    facts = machine.describe("cpu", ONNXRUNTIME) | {"backends": backends(options), "environment": KEEP_MEMORY}
    plan = Plan(
        cases=[case for cases in groups(options).values() for case in cases],
        process=lambda case: MODELS,
        rounds=options.rounds,
        parties=side_by_side(_TURN),
    )
    return measure(plan, report).result("export", command, options, facts)


def outcome(result: Result) -> Outcome:
    """The result in all its forms."""
    options = result.options
    ours, _, peer = candidates(options)
    verdicts = checks(result)
    models = f"{ours.model} with {ours.discretization} and {peer.model}, float32, random weights"
    return Outcome(
        result=result,
        summary=f"{result.where} {models}; {result.how}.",
        tables=[_times(result), *checks_tables(verdicts)],
        left_out=left_out(result),
        checks=verdicts,
        of_case=lambda case: _facts(result, case),
    )


def checks(result: Result) -> list[Check]:
    """What is promised, if it was measured."""
    ratio = _ratio(result, *BOUND_AT, 1, 0)
    size, batch = BOUND_AT
    claim = f"{size} px, batch {batch}: onnxruntime : tustin"
    return [worst(claim, "≤", BOUND, {"": ratio})] if ratio else []


def _ratio(result: Result, size: int, batch: int, one: int, other: int) -> Ratio | None:
    """Time of one candidate by that of another, by their places."""
    cases = groups(result.options).get((size, batch))
    return result.ratio(cases[one], cases[other]) if cases else None


def _facts(result: Result, case: Case) -> dict[str, Any]:
    assert isinstance(case, ModelCase)
    return {"name": case.candidate.name, "images_per_second": case.batch / result.timings[case].median}


def _times(result: Result) -> Table:
    rows = []
    for (size, batch), cases in groups(result.options).items():
        times = [number(1e3 * result.timings[case].median) if case in result.timings else NOTHING for case in cases]
        ratios = [_ratio(result, size, batch, one, other) for one, other in ((1, 0), (1, 2))]
        rows.append((f"{size} px", str(batch), *times, *(r.text(2) if r else NOTHING for r in ratios)))
    ours, _, peer = (who.model.split("_patch")[0] for who in candidates(result.options))
    header = ("image", "batch", f"{ours}, tustin (ms)", f"{ours} (ms)", f"{peer} (ms)", "× tustin", f"× {peer}")
    note = (
        f"Median times of a call; all but the first column in onnxruntime. The ratios are the time of the exported "
        f"{ours} divided by that of the others, with {CONFIDENCE:.0%} intervals."
    )
    return Table("export", f"{ours} as an ONNX file, in onnxruntime", header, rows, note)
