"""What to conclude from the speed of models, in tables: who is fastest, what to deploy, what a rule costs."""

from __future__ import annotations

import math
from collections.abc import Callable

from .paper_figures import FASTEST, SCENARIOS, SOURCE
from .speed import BALANCED, BASELINE, ModelCase, Speed
from .table import NOTHING, Table, number, signed
from .timing import CONFIDENCE, ERROR, SMALLEST_MARGIN, Ratio, Standing, Timing

A100 = "paper, A100"
PAPER_MODEL = "vim_tiny_patch16_224"
_PAPER_NOTE = f" Columns marked “{A100}” are printed in {SOURCE} and were not measured here."


def summary(speed: Speed) -> str:
    """Where and how it was measured."""
    kind = "training steps (forward, backward, AdamW)" if speed.training else "inference"
    size = f"images of {speed.cases[0].img_size} x {speed.cases[0].img_size}"
    return f"{speed.result.where} {speed.result.options.model}, {kind}, float32, {size}; {speed.result.how}."


def conclusions(speed: Speed) -> list[Table]:
    """Who is fastest, what to deploy, and what each rule costs."""
    return [fastest_table(speed), scenarios_table(speed), relative_table(speed)]


def fastest_table(speed: Speed) -> Table:
    """Table "Fastest rule per batch size" of the paper, with ties."""
    with_paper = speed.result.options.model == PAPER_MODEL
    header = ["batch size", "fastest", "ms per image", "images/s", "runner-up", "ahead of it", "beyond noise"]
    header += [f"{A100}: {name}" for name in ("fastest", "ms per image", "images/s")] if with_paper else []
    rows = []
    for batch in sorted({*speed.batch_sizes, *(FASTEST if with_paper else ())}):
        cells = _fastest_cells(speed, batch) if batch in speed.batch_sizes else [NOTHING] * 6
        if with_paper:
            cells += _paper_cells(batch)
        rows.append((str(batch), *cells))
    return Table(
        "fastest",
        "Fastest rule per batch size",
        tuple(header),
        rows,
        f"Ahead: how much longer the runner-up takes; median over the rounds with its {CONFIDENCE:.0%} interval. "
        f"Beyond noise: the difference exceeds {SMALLEST_MARGIN:.0%} and the measured difference of {BASELINE} from "
        f"itself, and the {1 - ERROR:.0%} interval, corrected for the number of rules, does not contain 0. Otherwise "
        f"the rules are a tie.{_PAPER_NOTE if with_paper else ''}",
        frozenset({"fastest", "runner-up", "beyond noise", f"{A100}: fastest"}),
    )


def _paper_cells(batch: int) -> list[str]:
    told = FASTEST.get(batch)
    if told is None:
        return [NOTHING] * 3
    return [told.discretization, f"{told.milliseconds_per_image:.2f}", f"{told.images_per_second:.2f}"]


def _fastest_cells(speed: Speed, batch: int) -> list[str]:
    found = speed.standing(batch)
    seconds = speed.result.timings[speed.of_discretization(found.fastest, batch)].median
    ahead = change_text(found.margin) if found.margin else NOTHING
    won = "yes" if len(found.tied) == 1 and found.runner_up else "no"
    times = [number(1e3 * seconds / batch), number(batch / seconds)]
    return [_winner(found), *times, found.runner_up or NOTHING, ahead, won]


def _winner(found: Standing) -> str:
    if found.margin and math.isinf(found.margin.interval()[1]):  # then nobody is told from anybody
        return "too few rounds"
    return found.fastest if len(found.tied) == 1 else f"tie: {', '.join(found.tied)}"


def scenarios_table(speed: Speed) -> Table:
    """Table "Summary of deployment scenarios" of the paper."""
    with_paper = speed.result.options.model == PAPER_MODEL
    header = ["scenario", "batch size", "fastest", "performance", f"against {BASELINE}", "beyond noise"]
    header += [f"{A100}: {name}" for name in header[1:5]] if with_paper else []
    rows = []
    for scenario, batch in speed.scenarios().items():
        found = speed.standing(batch)
        case = speed.of_discretization(found.fastest, batch)
        seconds = speed.result.timings[case].median
        performance = f"{number(1e3 * seconds)} ms" if batch == 1 else f"{number(batch / seconds)} images/s"
        ratio = speed.to_baseline(case)
        gain = change_text(ratio.inverse()) if ratio and found.fastest != BASELINE else NOTHING
        cells = [str(batch), _winner(found), performance, gain, "yes" if speed.differs_from_baseline(case) else "no"]
        if with_paper:
            told = SCENARIOS[scenario]
            cells += [str(told.batch), told.discretization, told.performance, told.improvement]
        rows.append((scenario, *cells))
    missing = (
        "" if BALANCED in speed.batch_sizes else f" Batch size {BALANCED}, the balanced scenario, was not measured."
    )
    return Table(
        "scenarios",
        "What to deploy",
        tuple(header),
        rows,
        f"Against {BASELINE}: the change in throughput of the fastest rule, also where it is tied, with its "
        f"{CONFIDENCE:.0%} interval. High throughput is the largest batch that was measured."
        f"{missing}{_PAPER_NOTE if with_paper else ''}",
        frozenset(name for name in header if name.endswith(("fastest", "noise", "performance")) or name == header[-1]),
    )


def relative_table(speed: Speed) -> Table:
    """What each rule costs, and the noise."""

    def cell(case: ModelCase, timing: Timing) -> str:
        ratio = speed.to_baseline(case)
        if ratio is None or case == speed.of_discretization(BASELINE, case.batch):
            return "1" if ratio else NOTHING
        return ratio.text(3)

    return grid(
        speed,
        "relative",
        f"Time relative to {BASELINE}'s",
        cell,
        f"Median of the ratios within a round, and its {CONFIDENCE:.0%} interval. {BASELINE} again is the same model, "
        "measured as if it were another rule: its difference from 1 is noise.",
    )


def grid(speed: Speed, name: str, title: str, cell: Callable[[ModelCase, Timing], str], note: str) -> Table:
    """Candidates x batch sizes."""
    rows = []
    for candidate in speed.candidates:
        cases = [speed.case(candidate, batch) for batch in speed.batch_sizes]
        found = [(case, speed.timing(case)) for case in cases]
        rows.append((candidate.name, *(cell(case, timing) if timing else NOTHING for case, timing in found)))
    return Table(name, title, ("", *(f"batch {batch}" for batch in speed.batch_sizes)), rows, note)


def change_text(ratio: Ratio) -> str:
    """A ratio as a change in percent."""
    low, high = ratio.interval()
    middle = f"{signed(100 * (ratio.median - 1), 1)} %"
    if math.isinf(high):
        return f"{middle} (too few rounds)"
    return f"{middle} ({signed(100 * (low - 1), 1)} to {signed(100 * (high - 1), 1)})"
