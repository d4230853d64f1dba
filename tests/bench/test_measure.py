"""Rounds and turns: fair, and the same for every benchmark. No test looks at a clock."""

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.bench.results import CELL
from tustin.bench import measure as measure_module
from tustin.bench.measure import FIRST_CALL, Party, Plan, Process, balanced_order, measure, side_by_side, takes_part
from tustin.bench.workloads import Cell
from tustin.report.timing import Lap


def cell(name: str) -> Cell:
    return Cell("native", name, 1, 1, False, "float32", "channel-last")


A, B, C = map(cell, "abc")
ONE = Process("one")


class FakeWorker:
    """Calls that take as long as their number, in a process that notes what it was asked."""

    def __init__(self, log):
        self.log = log
        log.append("start")

    def ask(self, work, *arguments):
        return getattr(self, work.__name__)(*arguments)

    def first_calls(self, case):
        if case.discretization == "c":
            raise RuntimeError("no compiler\nsecond line")
        return 2.0, 1.0

    def laps(self, cases, orders, at_least):
        self.log.append(("".join(case.discretization for case in cases), orders, at_least))
        return [[1.0, 2.0] for _ in cases]

    def close(self):
        self.log.append("end")


@pytest.fixture
def log(monkeypatch):
    log = []
    monkeypatch.setattr(measure_module, "Worker", lambda environment: FakeWorker(log))
    return log


def plan(cases, parties, rounds=3, **options) -> Plan:
    return Plan(cases, lambda case: ONE, rounds, lambda expected, rounds: parties, **options)


def silent(*progress):
    pass


def test_every_party_has_a_turn_in_every_round(log):
    parties = [Party(members, 3, len(members) / 2) for members in ((A, B), (B,), (A,))]
    told = []
    found = measure(plan([A, B], parties), lambda *progress: told.append(progress))
    turns = [("ab", [[0, 1]], 1.0), ("b", [[0]], 0.5), ("a", [[0]], 0.5)]
    assert log == ["start", *turns * 3, "end"]
    assert told[-9:] == [(f"round {1 + done // 3} of 3", done, 9) for done in range(9)]
    assert {lap.party for lap in found.timings[A].laps} == {0, 2}
    only = {lap: call for lap, call in found.timings[B].laps.items() if lap.party == 1}
    assert only == {Lap(1, number, lap): lap + 1.0 for number in range(3) for lap in (0, 1)}


def test_fresh_processes_share_the_rounds(log):
    parties = [Party((A,), 5, 0.0)]
    assert measure(plan([A], parties, rounds=5, processes=2), silent).processes == 2
    assert [entry if isinstance(entry, str) else "lap" for entry in log] == [
        *("start", "lap", "lap", "lap", "end", "start", "lap", "lap", "end")
    ]
    assert measure(plan([A], parties, rounds=1, processes=2), silent).processes == 1


def test_a_balanced_party_changes_its_order_from_lap_to_lap_and_round_to_round(log):
    party = Party((A, B, CELL), 2, 0.0, balanced=True)
    assert party.orders(0) == [balanced_order(3, lap) for lap in range(3)]
    assert party.orders(1) == [balanced_order(3, 1 + lap) for lap in range(3)]


def test_what_is_refused_or_may_fail_is_left_out_with_its_reason(log):
    options = {"refuse": lambda case, known, processes: "too slow" if case == B else None}
    found = measure(plan([A, B, C], [Party((A,), 3, 0.0)], may_fail=lambda case: case == C, **options), silent)
    assert found.skipped == {B: "too slow", C: "no compiler second line"}
    assert list(found.timings) == [A]
    assert found.first == {A: 2.0}
    with pytest.raises(RuntimeError, match="no compiler"):
        measure(plan([C], []), silent)
    assert log[-1] != "start", "no process is left behind"


def test_of_some_the_first_call_is_all_that_is_measured(log):
    seen = []

    def parties(expected, rounds):
        seen.append(dict(expected))
        return []

    found = measure(Plan([A, B], lambda case: ONE, 1, parties, once=lambda case, seconds: case == B), silent)
    assert seen == [{A: 1.0}]
    assert found.timings[B].laps == {Lap(FIRST_CALL, 0, 0): 1.0}


@pytest.mark.parametrize("rounds", [1, 3, 7])
@pytest.mark.parametrize("turns", [1, 3, 7])
def test_fewer_turns_are_spread_over_the_rounds(turns, rounds):
    taken = [number for number in range(rounds) if takes_part(turns, rounds, number)]
    assert len(taken) == min(turns, rounds)
    gaps = {later - earlier for earlier, later in pairwise(taken)}
    assert not gaps or max(gaps) - min(gaps) <= 1


@pytest.mark.parametrize("n", [2, 4, 6, 8])
def test_everyone_has_every_place_and_follows_every_other_once(n):
    rows = [balanced_order(n, number) for number in range(n)]
    for row in rows:
        assert sorted(row) == list(range(n))
    for place in range(n):
        assert {row[place] for row in rows} == set(range(n))
    followed = [pair for row in rows for pair in pairwise(row)]
    assert len(set(followed)) == len(followed) == n * (n - 1)


def test_cases_of_the_same_work_are_a_party() -> None:
    long = replace(A, L=2)  # another rule is not other work
    found = side_by_side(0.5)({A: 1.0, long: 1.0, B: 1.0}, 3)
    assert found == [Party((A, B), 3, 1.0, balanced=True), Party((long,), 3, 0.5, balanced=True)]
