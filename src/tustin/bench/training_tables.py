"""The result of `tustin bench train` in tables: what a step costs with each rule, beside the paper's costs."""

from __future__ import annotations

import statistics

from ..report.paper_figures import PAPER, SOURCE
from ..study.tables import NOTHING, Table
from ..study.wording import signed
from .inference import BASELINE, Result
from .inference_tables import A100, change_text, checks_table, memory_text
from .models import Candidate
from .pairing import CONFIDENCE
from .report import number


def tables(result: Result) -> list[Table]:
    """A table for each batch size, then the verdicts."""
    return [*(_steps(result, batch) for batch in result.batch_sizes), checks_table(result.checks())]


def _steps(result: Result, batch: int) -> Table:
    header = ("", "ms per step", "images/s", "peak memory (MiB)", f"throughput against {BASELINE}", "beyond noise")
    return Table(
        f"training-{batch}",
        f"Training steps, batch {batch}",
        (*header, f"{A100}: against {BASELINE}"),
        [_row(result, candidate, batch) for candidate in result.candidates],
        f"Against {BASELINE}: median over the rounds, and its {CONFIDENCE:.0%} interval; {BASELINE} again shows the "
        "noise. Memory: what a step needs beside weights and images, to about 2 MiB. The column of the paper is "
        f"printed in {SOURCE} for CIFAR-100 and was not measured here.",
        frozenset({"beyond noise"}),
    )


def _row(result: Result, candidate: Candidate, batch: int) -> tuple[str, ...]:
    case = result.case(candidate, batch)
    calls, ratio = result.calls(case), result.to_baseline(case)
    is_baseline = case == result.of_discretization(BASELINE, batch)
    if not calls or ratio is None:
        return (candidate.name, *[NOTHING] * 6)
    seconds = statistics.median(calls)
    return (
        candidate.name,
        number(1e3 * seconds),
        number(batch / seconds),
        memory_text(result.measured.peaks.get(case)),
        NOTHING if is_baseline else change_text(ratio.inverse()),
        NOTHING if is_baseline else "yes" if result.differs_from_baseline(case) else "no",
        _paper(candidate),
    )


def _paper(candidate: Candidate) -> str:
    gains = PAPER["cifar100"].gains or {}
    told = gains.get(candidate.discretization or "")
    if told is None or told.throughput is None or candidate.again:
        return NOTHING
    return f"{signed(told.throughput, 2)} %"
