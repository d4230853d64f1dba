"""What is promised about speed, and whether a run shows it; the promises here are those of the fused scan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..report.table import NOTHING, Table
from ..report.timing import Ratio, Timing, lap_ratio
from .machine import GEMM_FLOP
from .workloads import Cell, peer_of

LONG = 6085


@dataclass(frozen=True)
class Check:
    """One promise: a ratio and its bound."""

    claim: str
    relation: str
    """"≥" or "≤"."""
    bound: float
    measured: float | None = None
    """Rounded as it is shown, so that number and verdict agree; None if this run did not measure it."""
    which: str | None = None
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


def check_all(
    center: Cell, discretizations: Sequence[str], find: Callable[[Cell], Timing | None], gemm: Timing
) -> list[Check]:
    """Every promise, in the order of the table; none if the run is about another shape, precision or thread count.

    `find` gives the timing of a cell, or None if it was not measured.
    """
    if (center.batch, center.L, center.dtype, center.threads) != (8, 197, "float32", 2):
        return []
    forward, backward = (replace(center, backward=back) for back in (False, True))
    checks, bound = [], 0.0
    for cell, bound in ((forward, 80), (backward, 50)):
        own = replace(cell, discretization="mamba")  # the rule that the peer has
        ratio = lap_ratio(find(peer_of(own)), find(own))
        checks.append(worst(f"{cell.mode}, mambapy : mamba", "≥", bound, {"mamba": ratio}, digits=1))
    for rule, bound, kind in (("mamba", 50, ""), ("bil", 35, ""), ("mamba", 30, ", stretch"), ("bil", 22, ", stretch")):
        ratio = lap_ratio(find(replace(forward, discretization=rule)), gemm)
        per_update = {rule: ratio and ratio.scaled(GEMM_FLOP / forward.updates)}
        checks.append(worst(f"GEMM FLOP/s : updates/s, {rule}{kind}", "≤", bound, per_update, digits=1))
    for cell, bound, bound_of_two in ((forward, 1.25, 1.25), (backward, 1.2, 1.35)):
        others_by_rule = [("zoh", ["bil", "rk4"], 1.0), ("zoh", ["foh", "pol", "hoh"], bound)]
        # What a second sample costs is measured against the rule with the same α.
        for one, two in (("zoh", "true_foh"), ("bil", "true_bil"), ("mamba", "exptrap")):
            others_by_rule.append((one, [two], bound_of_two))
        for rule, others, most in others_by_rule:
            baseline = find(replace(cell, discretization=rule))
            ratios = {name: lap_ratio(find(replace(cell, discretization=name)), baseline) for name in others}
            known = ratios if all(ratios.values()) else {}  # half a promise is none
            checks.append(worst(f"{cell.mode}, {', '.join(others)} : {rule}", "≤", most, known))
    for name, relation, bound, change, scale in (
        ("one thread : two", "≥", 1.8, {"threads": 1}, 1.0),
        (f"time per token, L {LONG} : {center.L}", "≤", 1.15, {"L": LONG}, center.L / LONG),
        ("bfloat16 : float32", "≤", 1.0, {"dtype": "bfloat16"}, 1.0),
    ):
        for cell in (forward, backward):
            cells = {rule: replace(cell, discretization=rule) for rule in discretizations}
            ratios = {rule: lap_ratio(find(replace(own, **change)), find(own)) for rule, own in cells.items()}
            scaled = {rule: ratio and ratio.scaled(scale) for rule, ratio in ratios.items()}
            checks.append(worst(f"{cell.mode}, {name}", relation, bound, scaled))
    return checks


def worst(claim: str, relation: str, bound: float, ratios: Mapping[str, Ratio | None], digits: int = 2) -> Check:
    """The check of the ratio that is furthest on the wrong side, by the names of the rules."""
    known = {name: ratio for name, ratio in ratios.items() if ratio}
    if not known:
        return Check(claim, relation, bound)
    name = (min if relation == "≥" else max)(known, key=lambda name: known[name].median)
    low, high = known[name].interval()
    interval = (round(low, digits), round(high, digits)) if low > 0 else None
    measured = round(known[name].median, digits)
    return Check(claim, relation, bound, measured, name if len(known) > 1 else None, interval)


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
