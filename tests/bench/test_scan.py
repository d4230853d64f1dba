"""The benchmark of the scan: every cell once, those that are compared in the same laps, the hopeless left out."""

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.bench.results import CELL, OPTIONS, made_up, without
from tests.systems import FUSED
from tustin.bench import scan, workloads
from tustin.bench.checks import LONG
from tustin.bench.machine import Limit
from tustin.bench.scan import Scans, cells, focus
from tustin.bench.workloads import COMPILED, PEER, Cell, peer_of

LEVELS = ("v4", "v3", "v2")
FEW = replace(OPTIONS, discretizations=("mamba", "bil"), levels=LEVELS)


def test_the_plan_holds_every_rule_backend_and_shape_once():
    found = cells(OPTIONS)
    assert len(set(found)) == len(found)
    for discretization in FUSED:
        for L in OPTIONS.lengths:
            for batch in (1, 8):
                for backward in (False, True):
                    base = replace(CELL, discretization=discretization, L=L, batch=batch, backward=backward)
                    assert {base, replace(base, backend="reference"), peer_of(base)} <= set(found)
    assert {cell.L for cell in found if cell.backend == COMPILED} == {64}
    assert {cell.backend for cell in cells(replace(OPTIONS, backends=("native",)))} == {"native"}


def test_the_focus_is_the_shape_of_the_checks_or_the_nearest():
    assert focus(OPTIONS) == CELL
    assert focus(replace(OPTIONS, lengths=(8, 150, 900), batch_sizes=(1, 4))) == replace(CELL, L=150, batch=4)


def test_every_rule_on_every_level_in_both_directions_on_one_thread_and_on_all() -> None:
    found = cells(FEW)
    assert len(found) == len(set(found)) == 2 * 3 * 2 * 2
    assert {(cell.batch, cell.L, cell.backend) for cell in found} == {(8, 197, "native")}
    assert {cell.threads for cell in cells(replace(FEW, threads=1))} == {1}


def test_what_needs_too_much_memory_is_left_out(monkeypatch):
    monkeypatch.setattr(workloads, "available_bytes", lambda device: 20 * 10**9)
    large = replace(peer_of(CELL), L=LONG, backward=True)

    def too_large(cell):
        return workloads.too_large(workloads.needed_bytes(cell), "cpu", 0.5)

    assert too_large(large) == "it would need about 17 GB of memory, more than 50% of the 20 GB that are free"
    assert too_large(replace(large, batch=1)) is None
    assert too_large(replace(CELL, L=LONG, backward=True)) is None
    assert too_large(replace(CELL, L=10**9)) is not None


def test_what_takes_too_long_is_left_out():
    cell = replace(CELL, backend="reference", L=1000)
    known = {replace(cell, L=10): 1e9, replace(cell, L=100): 0.2, replace(cell, L=500, discretization="zoh"): 1e9}
    assert scan._too_slow(cell, known, {}, allowed=2.0) is None
    assert scan._too_slow(cell, known, {}, allowed=1.5) == (
        "one call would take about 2.0 s; more than 1.5 s are not spent on it"
    )


def test_ratios_are_those_of_the_medians():
    result = made_up()
    assert Scans(result).times_faster_than_peer(CELL) == pytest.approx(100)
    assert Scans(result).times_faster_than_peer(replace(CELL, discretization="bil")) == pytest.approx(160)
    assert Scans(result).times_faster_than_peer(replace(CELL, backend="reference")) == pytest.approx(100 / 30)
    alone = without(result, "no peer", lambda cell: cell.backend != PEER)
    assert Scans(alone).times_faster_than_peer(CELL) is None


def test_those_that_are_compared_are_called_in_the_same_laps():
    expected = {cell: 0.001 for cell in cells(OPTIONS) if cell.backend != "reference"}
    parties = scan.parties(expected, 7, OPTIONS, scan.PATIENT)
    together = [set(party.members) for party in parties]
    for cell in (CELL, replace(CELL, backward=True)):
        others = {replace(cell, discretization="hoh"), *scan.variants(cell).values()}
        assert any({cell, *others} <= members for members in together)
        assert any({cell, replace(cell, L=LONG)} <= members for members in together)
    assert any({CELL, Limit("gemm", threads=2), Limit("copy", threads=2)} <= members for members in together)
    assert not any({CELL, peer_of(CELL)} <= members for members in together)
    assert {member for members in together for member in members if isinstance(member, Cell)} == set(expected)
    for party in parties:
        changes = sum(a.work != b.work for a, b in pairwise(party.members))
        long = LONG in {getattr(member, "L", 0) for member in party.members}
        assert changes <= (2 * (1 + len(OPTIONS.discretizations)) if long else 7)
        assert party.turns == OPTIONS.rounds
        assert len({scan.process_of(member, OPTIONS) for member in party.members}) == 1


def test_slow_parties_take_fewer_turns_and_the_limits_need_no_company():
    slow = {peer_of(CELL): 2.5, replace(peer_of(CELL), fused=True): 1.0}
    parties = scan.parties(slow, 7, OPTIONS, scan.PATIENT)
    assert [party.turns for party in parties] == [3, OPTIONS.rounds]
    assert {type(member) for member in parties[1].members} == {Limit}
