"""The result of `tustin bench inference` in tables: who is fastest, what to deploy, and all that was measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

from ..report.paper_figures import FASTEST, SCENARIOS, SOURCE
from ..study.tables import NOTHING, Table
from ..study.wording import signed
from . import machine
from .checks import Check
from .inference import BALANCED, BASELINE, PAPER_MODEL, Result
from .inference_facts import p95
from .measuring import PROCESSES, Measured
from .models import Case
from .pairing import CONFIDENCE, ERROR, SMALLEST_MARGIN, Ratio, Standing
from .report import CHECK_COLUMNS, check_texts, number

A100 = "paper, A100"


def summary(result: Result) -> str:
    """Where and how it was measured."""
    options, size = result.options, result.img_size
    kind = "training steps (forward, backward, AdamW)" if options.training else "inference"
    return (
        f"{machine.where(result.machine, options.threads)}; {result.date}. {options.model}, {kind}, float32, images of "
        f"{size} x {size}; {how(result.measured, options.device)}{machine.busy(result.machine)}."
    )


def how(measured: Measured, device: str) -> str:
    """Rounds and processes in words."""
    processes = "one process" if measured.rounds == 1 else f"{PROCESSES} processes"
    rounds = f"{measured.rounds} round{'s'[: measured.rounds > 1]} in turns, in {processes}"
    return rounds if device != "cpu" else f"{rounds} told to keep freed memory"


def tables(result: Result) -> list[Table]:
    """Everything that was found out, the conclusions first."""
    return [
        *conclusions(result),
        _grid(
            result,
            "latency",
            "Latency (ms per image)",
            lambda case: _latency(result.calls(case), case.batch),
            "Median, and in brackets what 95 of 100 calls do not exceed.",
        ),
        _grid(
            result,
            "throughput",
            "Throughput (images/s)",
            lambda case: number(case.batch / statistics.median(result.calls(case))),
            "By the median.",
        ),
        memory_table(result),
        checks_table(result.checks()),
    ]


def conclusions(result: Result) -> list[Table]:
    """Who is fastest, what to deploy, and what each rule costs."""
    return [fastest_table(result), scenarios_table(result), relative_table(result)]


# --- conclusions ------------------------------------------------------------------------------------------------------


def fastest_table(result: Result) -> Table:
    """Table "Fastest rule per batch size" of the paper, with ties."""
    with_paper = result.options.model == PAPER_MODEL
    header = ["batch size", "fastest", "ms per image", "images/s", "runner-up", "ahead of it", "beyond noise"]
    header += [f"{A100}: {name}" for name in ("fastest", "ms per image", "images/s")] if with_paper else []
    rows = []
    for batch in sorted({*result.batch_sizes, *(FASTEST if with_paper else ())}):
        cells = _fastest_cells(result, batch) if batch in result.batch_sizes else [NOTHING] * 6
        if with_paper:
            cells += _paper_cells(batch)
        rows.append((str(batch), *cells))
    return Table(
        "fastest",
        "Fastest rule per batch size",
        tuple(header),
        rows,
        f"Ahead: how much longer the runner-up takes, and the {CONFIDENCE:.0%} interval of its median over the rounds. "
        f"Beyond noise: it exceeds {SMALLEST_MARGIN:.0%} and what {BASELINE} seems to differ from itself by, and the "
        f"{1 - ERROR:.0%} interval, corrected for the number of rules, does not contain 0. Rules that are not told "
        f"apart in this way are a tie.{_paper_note() if with_paper else ''}",
        frozenset({"fastest", "runner-up", "beyond noise", f"{A100}: fastest"}),
    )


def _paper_cells(batch: int) -> list[str]:
    told = FASTEST.get(batch)
    if told is None:
        return [NOTHING] * 3
    return [told.discretization, f"{told.milliseconds_per_image:.2f}", f"{told.images_per_second:.2f}"]


def _fastest_cells(result: Result, batch: int) -> list[str]:
    found = result.standing(batch)
    seconds = statistics.median(result.calls(result.of_discretization(found.fastest, batch)))
    ahead = change_text(found.margin) if found.margin else NOTHING
    won = "yes" if len(found.tied) == 1 and found.runner_up else "no"
    return [
        _winner(found),
        number(1e3 * seconds / batch),
        number(batch / seconds),
        found.runner_up or NOTHING,
        ahead,
        won,
    ]


def _winner(found: Standing) -> str:
    return found.fastest if len(found.tied) == 1 else f"tie: {', '.join(found.tied)}"


def scenarios_table(result: Result) -> Table:
    """Table "Summary of deployment scenarios" of the paper."""
    with_paper = result.options.model == PAPER_MODEL
    header = ["scenario", "batch size", "fastest", "performance", f"against {BASELINE}", "beyond noise"]
    header += [
        f"{A100}: {name}" for name in ("batch size", "fastest", "performance", f"against {BASELINE}")
    ] * with_paper
    rows = []
    for scenario, batch in result.scenarios().items():
        found = result.standing(batch)
        case = result.of_discretization(found.fastest, batch)
        seconds = statistics.median(result.calls(case))
        performance = f"{number(1e3 * seconds)} ms" if batch == 1 else f"{number(batch / seconds)} images/s"
        ratio = result.to_baseline(case)
        gain = change_text(ratio.inverse()) if ratio and found.fastest != BASELINE else NOTHING
        cells = [str(batch), _winner(found), performance, gain, "yes" if result.differs_from_baseline(case) else "no"]
        if with_paper:
            told = SCENARIOS[scenario]
            cells += [str(told.batch), told.discretization, told.performance, told.improvement]
        rows.append((scenario, *cells))
    missing = (
        "" if BALANCED in result.batch_sizes else f" Batch size {BALANCED}, the balanced scenario, was not measured."
    )
    return Table(
        "scenarios",
        "What to deploy",
        tuple(header),
        rows,
        f"Against {BASELINE}: the change in throughput of the fastest rule, also where it is tied, with its "
        f"{CONFIDENCE:.0%} interval. High throughput is the largest batch that was measured."
        f"{missing}{_paper_note() if with_paper else ''}",
        frozenset(name for name in header if name.endswith(("fastest", "noise", "performance")) or name == header[-1]),
    )


def relative_table(result: Result) -> Table:
    """What each rule costs, and the noise."""

    def cell(case: Case) -> str:
        ratio = result.to_baseline(case)
        if ratio is None or case == result.of_discretization(BASELINE, case.batch):
            return "1" if ratio else NOTHING
        return ratio_text(ratio)

    return _grid(
        result,
        "relative",
        f"Time relative to {BASELINE}'s",
        cell,
        f"Median of the ratios within a round, and its {CONFIDENCE:.0%} interval. {BASELINE} again is the same model, "
        "measured as if it were another: what it differs by is noise.",
    )


def _paper_note() -> str:
    return f" Columns marked “{A100}” are printed in {SOURCE} and were not measured here."


# --- numbers ----------------------------------------------------------------------------------------------------------


def _grid(result: Result, name: str, title: str, cell: Callable[[Case], str], note: str) -> Table:
    """Candidates x batch sizes."""
    rows = []
    for candidate in result.candidates:
        cases = [result.case(candidate, batch) for batch in result.batch_sizes]
        rows.append((candidate.name, *(cell(case) if case in result.measured.seconds else NOTHING for case in cases)))
    return Table(name, title, ("", *(f"batch {batch}" for batch in result.batch_sizes)), rows, note)


def memory_table(result: Result) -> Table:
    """Of the candidates whose memory was measured."""
    peaks = result.measured.peaks
    table = _grid(
        result,
        "memory",
        "Peak memory (MiB)",
        lambda case: memory_text(peaks.get(case)),
        "What one call needs beside weights and images, in a process of its own, to about 2 MiB.",
    )
    measured = {case.candidate.name for case in peaks}
    return Table(table.name, table.title, table.header, [row for row in table.rows if row[0] in measured], table.note)


def checks_table(checks: Sequence[Check]) -> Table:
    """The promises, and whether this run shows them."""
    rows = [(check.claim, *check_texts(check)) for check in checks]
    return Table("checks", "Checks", ("claim (ratio)", *CHECK_COLUMNS), rows, "", frozenset({"holds"}))


def left_out(measured: Measured) -> list[str]:
    """What was not measured and why: one line each."""
    return [f"{case}: {reason}" for case, reason in measured.skipped.items()]


def _latency(seconds: Sequence[float], batch: int) -> str:
    return f"{number(1e3 * statistics.median(seconds) / batch)} ({number(1e3 * p95(seconds) / batch)})"


def memory_text(peak: int | None) -> str:
    """In MiB, as exactly as a system counts that updates the peak of a process now and then."""
    if peak is None:
        return NOTHING
    return f"{peak / 2**20:.0f}" if peak >= _COUNTED else f"< {_COUNTED >> 20}"


_COUNTED = 2 << 20


def ratio_text(ratio: Ratio) -> str:
    low, high = ratio.interval()
    return f"{ratio.median:.3f}" + ("" if math.isinf(high) else f" ({low:.3f} to {high:.3f})")


def change_text(ratio: Ratio) -> str:
    """A ratio as a change in percent."""
    low, high = ratio.interval()
    middle = f"{signed(100 * (ratio.median - 1), 1)} %"
    if math.isinf(high):
        return f"{middle} (too few rounds)"
    return f"{middle} ({signed(100 * (low - 1), 1)} to {signed(100 * (high - 1), 1)})"
