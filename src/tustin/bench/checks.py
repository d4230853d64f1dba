"""What is promised about speed, and whether a run shows it; the promises here are those of the fused scan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..report.table import NOTHING, Table
from ..report.timing import Ratio, Timing, lap_ratio
from .machine import GEMM_FLOP
from .workloads import Cell, peer_of

Find = Callable[[Cell], Timing | None]
"""The timing of a cell, or None if it was not measured."""

LONG = 6085

ONE_SAMPLE_AND_TWO = {"zoh": "true_foh", "bil": "true_bil", "mamba": "exptrap"}
"""What a second sample costs is measured against the rule with the same α."""


@dataclass(frozen=True)
class Check:
    """One promise: a ratio and its bound."""

    claim: str
    relation: str
    """"≥" or "≤"."""
    bound: float
    measured: float | None
    """Rounded as it is shown, so that number and verdict agree; None if this run did not measure it."""
    which: str | None
    """The rule that is worst at it, where the promise is about several."""
    interval: tuple[float, float] | None = None
    """Where the true ratio is; None if there are too few measurements to tell."""

    @property
    def holds(self) -> bool | None:
        return None if self.measured is None else self._allows(self.measured)

    @property
    def decided(self) -> bool:
        """Whether both ends of the interval say the same."""
        return self.interval is None or self._allows(self.interval[0]) == self._allows(self.interval[1])

    def facts(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self) | {"holds": self.holds, "decided": self.decided}

    def _allows(self, ratio: float) -> bool:
        return ratio >= self.bound if self.relation == "≥" else ratio <= self.bound


def stated_for(center: Cell) -> bool:
    """Whether the promises are about this shape, precision and number of threads."""
    return (center.batch, center.L, center.dtype, center.threads) == (8, 197, "float32", 2)


def check_all(center: Cell, discretizations: Sequence[str], find: Find, gemm: Timing) -> list[Check]:
    """Every promise, in the order of the table; none if the run is about something else."""
    if not stated_for(center):
        return []
    forward = replace(center, backward=False)
    backward = replace(center, backward=True)
    checks = [
        _against_peer(forward, 80, find),
        _against_peer(backward, 50, find),
        *(
            _against_gemm(replace(forward, discretization=discretization), bound, kind, find, gemm)
            for kind, bounds in (("", {"mamba": 50, "bil": 35}), (", stretch", {"mamba": 30, "bil": 22}))
            for discretization, bound in bounds.items()
        ),
    ]
    for cell, bound, bound_of_two in ((forward, 1.25, 1.25), (backward, 1.2, 1.35)):
        checks.append(_against_rule("zoh", cell, ("bil", "rk4"), 1.0, find))
        checks.append(_against_rule("zoh", cell, ("foh", "pol", "hoh"), bound, find))
        for one, two in ONE_SAMPLE_AND_TWO.items():
            checks.append(_against_rule(one, cell, (two,), bound_of_two, find))
    for cell in (forward, backward):
        name = f"{cell.mode}, one thread : two"
        checks.append(worst(name, "≥", 1.8, _ratios(cell, discretizations, lambda c: replace(c, threads=1), find)))
    for cell in (forward, backward):
        name = f"{cell.mode}, time per token, L {LONG} : {cell.L}"
        ratios = _ratios(cell, discretizations, lambda c: replace(c, L=LONG), find)
        checks.append(worst(name, "≤", 1.15, {name: long.scaled(cell.L / LONG) for name, long in ratios.items()}))
    for cell in (forward, backward):
        name = f"{cell.mode}, bfloat16 : float32"
        checks.append(
            worst(name, "≤", 1.0, _ratios(cell, discretizations, lambda c: replace(c, dtype="bfloat16"), find))
        )
    return checks


def _against_peer(cell: Cell, bound: float, find: Find) -> Check:
    own = replace(cell, discretization="mamba")  # the rule that the peer has
    ratios = _ratios(own, ("mamba",), peer_of, find)
    return worst(f"{cell.mode}, mambapy : mamba", "≥", bound, ratios, digits=1)


def _against_gemm(cell: Cell, bound: float, kind: str, find: Find, gemm: Timing) -> Check:
    ratio = lap_ratio(find(cell), gemm)
    ratios = {cell.discretization: ratio.scaled(GEMM_FLOP / cell.updates)} if ratio else {}
    return worst(f"GEMM FLOP/s : updates/s, {cell.discretization}{kind}", "≤", bound, ratios, digits=1)


def _against_rule(rule: str, cell: Cell, discretizations: Sequence[str], bound: float, find: Find) -> Check:
    ratios = _ratios(cell, discretizations, lambda c: c, find, lambda c: replace(c, discretization=rule))
    if len(ratios) < len(discretizations):
        ratios = {}  # half a promise is none
    return worst(f"{cell.mode}, {', '.join(discretizations)} : {rule}", "≤", bound, ratios)


def _ratios(
    cell: Cell,
    discretizations: Sequence[str],
    one: Callable[[Cell], Cell],
    find: Find,
    other: Callable[[Cell], Cell] = lambda cell: cell,
) -> dict[str, Ratio]:
    """Time of one cell by time of the other, for each rule where both are known; both are made of the rule's own."""
    cells = {name: replace(cell, discretization=name) for name in discretizations}
    found = {name: lap_ratio(find(one(own)), find(other(own))) for name, own in cells.items()}
    return {name: ratio for name, ratio in found.items() if ratio}


def worst(claim: str, relation: str, bound: float, ratios: dict[str, Ratio], digits: int = 2) -> Check:
    """The check of the ratio that is furthest on the wrong side."""
    if not ratios:
        return Check(claim, relation, bound, None, None)
    discretization = (min if relation == "≥" else max)(ratios, key=lambda name: ratios[name].median)
    low, high = ratios[discretization].interval()
    return Check(
        claim=claim,
        relation=relation,
        bound=bound,
        measured=round(ratios[discretization].median, digits),
        which=discretization if len(ratios) > 1 else None,
        interval=(round(low, digits), round(high, digits)) if low > 0 else None,
    )


def checks_tables(checks: Sequence[Check], title: str = "Checks", claim: str = "claim (ratio)") -> list[Table]:
    """The promises, and whether this run shows them; no table if there are none."""
    header = (claim, "required", "measured", "95% interval", "holds")
    rows = [(check.claim, *check_texts(check)) for check in checks]
    return [Table("checks", title, header, rows, words=frozenset({"holds"}), long_names=True)] if rows else []


def check_texts(check: Check) -> tuple[str, ...]:
    """A check in words, column by column."""
    required = f"{check.relation} {check.bound:g}"
    if check.measured is None:
        return required, "not measured", NOTHING, NOTHING
    measured = f"{check.measured:g}" + (f" ({check.which})" if check.which else "")
    interval = f"{check.interval[0]:g} to {check.interval[1]:g}" if check.interval else NOTHING
    return required, measured, interval, ("yes" if check.holds else "no") if check.decided else "undecided"
