"""The survey for people: a table for each kernel, and the estimates."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from ...report import terminal
from .cases import BATCHES, D, L, N
from .roofline import GPUS, estimate
from .survey import Found, relative_to_zoh

if TYPE_CHECKING:
    from rich.table import Table

_SEGMENTS = ", in segments"
PASSES = {
    f"forward, {BATCHES['']}": ("scan forward",),
    f"backward, {BATCHES['']}": ("scan backward",),
    f"forward, {BATCHES[_SEGMENTS]}": tuple(
        f"scan {name}{_SEGMENTS}" for name in ("end_of_segment", "join_segments", "forward")
    ),
    f"backward, {BATCHES[_SEGMENTS]}": tuple(
        f"scan {name}{_SEGMENTS}" for name in ("start_of_segment", "join_segments, backwards", "backward")
    ),
}
"""The launches of a pass of the scan, by its name and number of samples."""

LEGEND = f"""\
ViM-tiny at 224²: D {D}, N {N}, L {L}; {BATCHES[""]} samples, and {BATCHES[_SEGMENTS]} where time is cut into segments.
registers: of a thread, with inputs of {{dtypes}}. spills: over all of these. shared: bytes of a program.
all: instructions of one lane per token and state, with inputs of {{first}}; for the convolution per token and channel.
zoh: relative to zoh's. After it those of some kinds; load and store are those of global memory."""
ESTIMATED = """\
Least microseconds of a pass of the scan, and of the convolution, with inputs of {first}, by what limits it: memory (the
bytes of all arguments, each once), issue (one instruction per warp and cycle) or units (of arithmetic, or of loads and
stores).
An estimate from the data sheets and the code above; nothing was measured on a GPU."""


def render(found: Sequence[Found]) -> list[Table | str]:
    """Text and tables for rich."""
    dtypes = list(dict.fromkeys(one.case.dtype for one in found))
    parts: list[Table | str] = [LEGEND.format(dtypes=", ".join(dtypes), first=dtypes[0]), ""]
    for (target, kernel), group in groupby(_sorted(found), key=lambda one: (one.target, one.case.kernel)):
        parts += [f"{target}, {kernel}", _kernel_table(list(group), found), ""]
    for target, gpu in GPUS.items():
        here = [one for one in found if one.target == target and one.case.dtype == dtypes[0]]
        if here:
            parts += [f"{gpu.name} ({target})", _estimate_table(here), ""]
    return [*parts, *([ESTIMATED.format(first=dtypes[0])] if {one.target for one in found} & {*GPUS} else [])]


def _sorted(found: Sequence[Found]) -> list[Found]:
    """Kernel by kernel, each with all its rules and dtypes, in the order in which they were found."""
    order = list(dict.fromkeys((one.target, one.case.kernel) for one in found))
    return sorted(found, key=lambda one: order.index((one.target, one.case.kernel)))


def _kernel_table(group: list[Found], found: Sequence[Found]) -> Table:
    header = ("", "registers", "spills", "shared", "all", "zoh", "float", "special", "int", "load", "store")
    table = terminal.table(header)
    for discretization in dict.fromkeys(one.case.discretization for one in group):
        same = [one for one in group if one.case.discretization == discretization]
        first, ratio = same[0], relative_to_zoh(same[0], found)
        kinds = (None, "float", "special", "integer", "global load", "global store")
        counts = [_number(first.per_update(kind)) for kind in kinds]
        table.add_row(
            discretization or "",
            "/".join(str(one.code.registers) for one in same),
            str(sum(one.code.spills for one in same)),
            str(first.code.shared),
            counts[0],
            f"{ratio:.2f}" if ratio else "",
            *counts[1:],
        )
    return table


def _estimate_table(here: list[Found]) -> Table:
    table = terminal.table(["", *PASSES])
    by_name = {(one.case.kernel, one.case.discretization): one for one in here}
    for discretization in dict.fromkeys(one.case.discretization for one in here if one.case.discretization):
        passes = (
            [by_name.get((k, discretization)) or by_name[k, None] for k in kernels] for kernels in PASSES.values()
        )
        table.add_row(discretization, *(least(launches) for launches in passes))
    table.add_row("conv", *(least([by_name[f"conv {name}", None]]) for name in ("forward", "backward")))
    return table


def least(launches: list[Found]) -> str:
    """Microseconds, and the limit of the longest launch."""
    estimates = [estimate(GPUS[one.target], one.case, one.code) for one in launches]
    longest = max(estimates, key=lambda e: e.seconds)
    return f"{sum(e.seconds for e in estimates) * 1e6:.1f} {longest.limit}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}" if value >= 100 else f"{value:.2f}"
