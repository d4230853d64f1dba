"""Times are compared in pairs, by medians, and what the machine's load decides is not decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tustin.report.formats import as_latex, as_markdown
from tustin.study import Result, Study
from tustin.study.stats import analyse
from tustin.study.times import CostVerdict, costs, decided_by_cpu, times_table

from .studies import ENVIRONMENT, STUDIES, done, plan, study


def timed(ratios: Sequence[float], loads: Sequence[float] = (), cpu: bool = True, device: str = "cpu") -> Study:
    """A study of zoh and bil: CPU seconds of bil by those of zoh, and how much longer the clock on the wall ran."""

    def run(name: str, seed: int) -> Result:
        seconds = (10.0 + seed) * (ratios[seed] if name == "bil" else 1.0)
        load = loads[seed] if loads and name == "bil" else 1.0
        environment = {**ENVIRONMENT, "device": device}
        times = {"cpu_seconds": seconds if cpu else None, "train_seconds": seconds * load}
        return replace(done(name, seed), environment=environment, **times)

    return study(plan(("zoh", "bil"), len(ratios)), run)


def verdict(of: Study) -> CostVerdict:
    return costs(analyse(of))[1].verdict


def test_the_median_of_the_pairs_is_told_not_the_ratio_of_the_means() -> None:
    zoh, bil = costs(analyse(timed([1.2, 1.2, 1.2, 9.0, 1.2, 1.2, 1.2])))
    assert zoh.verdict == CostVerdict.BASELINE
    assert zoh.cpu.ratio is None
    assert bil.cpu.ratio is not None
    assert bil.cpu.ratio.median == pytest.approx(1.2)
    assert bil.verdict == CostVerdict.SLOWER


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ([1.1, 1.2, 1.3, 1.1, 1.2, 1.1], "slower"),
        ([0.9, 0.8, 0.9, 0.7, 0.8, 0.9], "faster"),
        ([1.1, 1.2, 1.3, 1.1, 1.2], "undecided"),  # five pairs have no interval
        ([1.9, 0.7, 1.3, 0.8, 1.6, 1.1], "undecided"),
        ([1.005] * 8, "undecided"),  # less than a run may owe to where its memory lies
    ],
)
def test_verdicts(ratios: list[float], expected: str) -> None:
    assert verdict(timed(ratios)) == expected


def test_the_load_of_the_machine_is_not_a_slow_rule() -> None:
    of = timed([1.0] * 8, loads=[1.9] * 8)
    assert verdict(of) == CostVerdict.UNDECIDED
    table = times_table(analyse(of))
    assert table is not None
    told = dict(zip(table.header, table.rows[1], strict=True))
    assert told["CPU time : zoh"] == "1.00 (1.00 to 1.00)"
    assert told["wall time : zoh"] == "1.90 (1.90 to 1.90)"


@pytest.mark.parametrize("changes", [{"cpu": False}, {"device": "cuda"}])
def test_the_wall_decides_on_a_gpu_and_where_nothing_else_is_known(changes: dict[str, object]) -> None:
    of = timed([1.0] * 8, loads=[1.9] * 8, **changes)  # type: ignore[arg-type]
    assert not decided_by_cpu(analyse(of))
    assert verdict(of) == CostVerdict.SLOWER
    table = times_table(analyse(of))
    assert table is not None
    assert "The verdict uses wall time" in table.note
    assert ("CPU time (s)" in table.header) == ("device" in changes)


def test_six_rules_need_more_pairs_than_two() -> None:
    six = study(
        plan(seeds=6), lambda name, seed: replace(done(name, seed), cpu_seconds=20.0 if name == "rk4" else 10.0)
    )
    assert {cost.verdict for cost in costs(analyse(six))[1:]} == {CostVerdict.UNDECIDED}


@pytest.mark.parametrize("render", [as_markdown, as_latex])
def test_every_form_says_what_the_times_are(render) -> None:  # type: ignore[no-untyped-def]
    table = times_table(analyse(STUDIES["complete"]))
    assert table is not None
    text = render(table)
    assert "CPU time is the time that all threads of a run spent computing" in text
    assert "Undecided does not mean equal" in text


@pytest.mark.parametrize(("seconds", "shown", "unit"), [(30, "30.0", "s"), (600, "10.0", "min"), (172_800, "2.0", "d")])
def test_long_training_is_told_in_a_fitting_unit(seconds: float, shown: str, unit: str) -> None:
    of = study(plan(("zoh",), 1), lambda m, s: replace(done(m, s), train_seconds=seconds, cpu_seconds=seconds))
    table = times_table(analyse(of))
    assert table is not None
    assert table.header == ("discretization", f"CPU time ({unit})", f"wall time ({unit})")
    assert table.rows[0] == ("zoh", shown, shown)


def test_without_a_run_there_is_no_table() -> None:
    assert times_table(analyse(STUDIES["nothing yet"])) is None
