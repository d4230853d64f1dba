"""What a training step costs with each rule, in a table beside the paper's costs."""

from __future__ import annotations

from collections.abc import Sequence

from ..report.paper_figures import PAPER, SOURCE
from ..report.speed import BASELINE, Candidate, Speed
from ..report.speed_tables import A100, change_text
from ..report.table import NOTHING, Table, number, signed
from ..report.timing import CONFIDENCE
from .checks import Check, checks_tables
from .memory import memory_text


def tables(speed: Speed, checks: Sequence[Check]) -> list[Table]:
    """A table for each batch size, then the verdicts."""
    return [*(_steps(speed, batch) for batch in speed.batch_sizes), *checks_tables(checks)]


def _steps(speed: Speed, batch: int) -> Table:
    header = ("", "ms per step", "images/s", "peak memory (MiB)", f"throughput against {BASELINE}", "beyond noise")
    return Table(
        f"training-{batch}",
        f"Training steps, batch {batch}",
        (*header, f"{A100}: against {BASELINE}"),
        [_row(speed, candidate, batch) for candidate in speed.candidates],
        f"Against {BASELINE}: median over the rounds, and its {CONFIDENCE:.0%} interval; {BASELINE} again shows the "
        "noise. Memory: what a step needs in addition to the weights and the images, to about 2 MiB. The paper's "
        f"column is printed in {SOURCE} for CIFAR-100 and was not measured here.",
        frozenset({"beyond noise"}),
    )


def _row(speed: Speed, candidate: Candidate, batch: int) -> tuple[str, ...]:
    case = speed.case(candidate, batch)
    timing, ratio = speed.timing(case), speed.to_baseline(case)
    is_baseline = case == speed.of_discretization(BASELINE, batch)
    if not timing or ratio is None:
        return (candidate.name, *[NOTHING] * 6)
    return (
        candidate.name,
        number(1e3 * timing.median),
        number(batch / timing.median),
        memory_text(speed.result.peaks.get(case)),
        NOTHING if is_baseline else change_text(ratio.inverse()),
        NOTHING if is_baseline else "yes" if speed.differs_from_baseline(case) else "no",
        _paper(candidate),
    )


def _paper(candidate: Candidate) -> str:
    gains = PAPER["cifar100"].gains or {}
    told = gains.get(candidate.discretization or "")
    if told is None or told.throughput is None or candidate.again:
        return NOTHING
    return f"{signed(told.throughput, 2)} %"
