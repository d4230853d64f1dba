"""The benchmark of the scan: fair turns, ratios that are right, verdicts that are honest. No test looks at a clock."""

import functools
import json
import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tustin import DISCRETIZATIONS, selective_scan
from tustin.bench import files, machine, options, report, scan, timing, workloads
from tustin.bench import worker as worker_module
from tustin.bench.checks import LONG, check_all
from tustin.bench.machine import Limit
from tustin.bench.scan import focus, plan
from tustin.bench.timing import Lap, Party, Timing, summarize
from tustin.bench.worker import Worker
from tustin.bench.workloads import COMPILED, GPU_PEER, PEER, PEER_KEEPING, Cell, peer_of
from tustin.cli import main
from tustin.ops import native
from tustin.ops.scan.native import discretization_names

from .results import OPTIONS, made_up, seconds, without

ROOT = Path(__file__).parents[2]
SMALL = ["--lengths", "8", "--batch-sizes", "1", "--discretizations", "bil", "--repeats", "1", "--threads", "1"]
CELL = Cell("native", "mamba", 8, 197, False, "float32", "channel-last", 2)

needs_native = pytest.mark.skipif(bool(native.missing()), reason="the native library was not built")


# --- timing -----------------------------------------------------------------------------------------------------------


def laps(*calls: float, party: int = 0, round: int = 0) -> dict[Lap, float]:
    return {Lap(party, round, number): seconds for number, seconds in enumerate(calls)}


def test_summary_is_the_median_and_the_quartiles():
    calls = laps(5.0, 1.0, 3.0) | laps(2.0, 4.0, round=2)
    assert summarize(calls) == Timing(calls=5, low=2.0, median=3.0, high=4.0, laps=calls)
    assert summarize(laps(7.0)) == Timing(calls=1, low=7.0, median=7.0, high=7.0, laps=laps(7.0))
    assert summarize(laps(1.0, 100.0, 1.0)).median == 1.0
    assert Timing(5, low=2.0, median=4.0, high=5.0).spread == 0.375


def test_what_slows_a_lap_down_hits_both_sides_of_a_ratio():
    own = summarize(laps(1.0, 9.0, 1.0))
    other = summarize(laps(2.0, 18.0, 2.2) | laps(50.0, round=1))
    assert timing.ratio(other, own).values == (2.0, 2.0, 2.2)


def test_without_common_laps_it_is_the_round_and_without_these_everything():
    own = summarize(laps(1.0, 1.0, 7.0) | laps(9.0, round=1))
    apart = summarize(laps(3.0, 2.0, 4.0, party=1) | laps(18.0, party=1, round=1))
    assert timing.ratio(apart, own).values == (3.0, 2.0)
    assert timing.ratio(summarize(laps(12.0, party=1, round=7)), own).values == (3.0,)


def test_every_party_has_a_turn_in_every_round():
    order = []

    def run(name, at_least):
        order.append((name, at_least))
        return [[1.0, 2.0] for _ in name]

    parties = [Party(name, functools.partial(run, name), turns=3) for name in ("ab", "c", "a")]
    rounds = []
    found = timing.in_turns(parties, 3, 0.5, rounds.append)
    assert order == [("ab", 1.0), ("c", 0.5), ("a", 0.5)] * 3
    assert rounds == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert found["c"].laps == {Lap(1, number, lap): lap + 1.0 for number in range(3) for lap in (0, 1)}
    assert {lap.party for lap in found["a"].laps} == {0, 2}


@pytest.mark.parametrize("rounds", [1, 3, 7])
@pytest.mark.parametrize("turns", [1, 3, 7])
def test_fewer_turns_are_spread_over_the_rounds(turns, rounds):
    taken = [number for number in range(rounds) if timing.takes_part(turns, rounds, number)]
    assert len(taken) == min(turns, rounds)
    gaps = {later - earlier for earlier, later in pairwise(taken)}
    assert not gaps or max(gaps) - min(gaps) <= 1


def test_there_is_a_lap_at_least_and_not_laps_without_end():
    calls = []

    def call(member):
        calls.append(member)
        return float(len(calls))

    assert timing.in_laps(call, [[1, 0], [0, 1]], 0.0) == [[2.0], [1.0]]
    assert [len(own) for own in timing.in_laps(call, [[1, 0], [0, 1]], 1e9, most=3)] == [3, 3]
    assert calls == [1, 0, 1, 0, 0, 1, 1, 0]


def test_a_call_that_would_find_caches_or_threads_cold_is_made_once_untimed(monkeypatch):
    made = []
    monkeypatch.setattr(worker_module, "_call", lambda key: lambda: made.append(key))
    monkeypatch.setattr(worker_module, "_expected", {})
    quick, other, one_thread, long = (
        CELL,
        replace(CELL, discretization="bil"),
        replace(CELL, threads=1),
        replace(CELL, L=LONG),
    )
    keys, order = [quick, other, one_thread, long], [0, 1, 2, 3, 0]
    seconds = dict.fromkeys(keys, 0.01) | {long: 0.1}
    monkeypatch.setattr(timing, "time_once", lambda run: run() or seconds[made[-1]])
    unknown = worker_module._laps(keys, [[0, 1, 2, 3]], 0.0)
    assert unknown == [[0.01], [0.01], [0.01], [0.1]]
    assert made == [key for key in keys for _ in range(2)]
    made.clear()
    worker_module._laps(keys, [order], 0.0)
    assert made == [quick, quick, other, one_thread, one_thread, long, long, quick, quick]
    seconds[quick] = seconds[long] = 0.5  # too long to be made twice
    worker_module._laps(keys, [order], 0.0)
    made.clear()
    worker_module._laps(keys, [order], 0.0)
    assert made == [quick, other, one_thread, one_thread, long, quick]


# --- what is timed ----------------------------------------------------------------------------------------------------


def test_the_plan_holds_every_rule_backend_and_shape_once():
    cells = plan(OPTIONS)
    assert len(set(cells)) == len(cells)
    for discretization in DISCRETIZATIONS:
        for L in OPTIONS.lengths:
            for batch in (1, 8):
                for backward in (False, True):
                    base = replace(CELL, discretization=discretization, L=L, batch=batch, backward=backward)
                    assert {base, replace(base, backend="reference"), peer_of(base)} <= set(cells)
    assert {cell.L for cell in cells if cell.backend == COMPILED} == {64}
    assert {cell.backend for cell in plan(replace(OPTIONS, backends=("native",)))} == {"native"}


def test_the_focus_is_the_shape_of_the_checks_or_the_nearest():
    assert focus(OPTIONS) == CELL
    assert focus(replace(OPTIONS, lengths=(8, 150, 900), batch_sizes=(1, 4))) == replace(CELL, L=150, batch=4)


@needs_native
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("layout", ["channel-last", "token-last"])
def test_peer_and_ours_do_the_same_work(backward, layout):
    pytest.importorskip("mambapy")
    cell = Cell("native", "mamba", 2, 37, backward, "float32", layout, 1)
    ours, reference = (workloads.make_call(replace(cell, backend=b))() for b in ("native", "reference"))
    theirs = workloads.make_call(peer_of(cell))()
    if not backward:
        ours, reference, theirs = [ours], [reference], [theirs]
    assert len(ours) == len(theirs) == (6 if backward else 1)
    for own, expected, other in zip(ours, reference, theirs, strict=True):
        other = other if other.shape == own.shape else other.transpose(1, 2)
        torch.testing.assert_close(own, expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-4)


def test_the_layouts_hold_the_same_numbers_and_are_what_they_are_called():
    first, second = (workloads.make_inputs(2, 5, "float32", layout) for layout in ("channel-last", "token-last"))
    torch.testing.assert_close(first.u, second.u, rtol=0, atol=0)
    assert first.u.stride()[1] == 1
    assert second.u.stride()[2] == 1
    assert first.u.is_leaf
    assert first.u.requires_grad


def test_everything_fused_takes_the_same_steps():
    inputs = workloads.make_inputs(2, 5, "float32", "channel-last")
    steps = torch.nn.functional.softplus(inputs.raw_delta + inputs.bias[:, None])
    torch.testing.assert_close(steps, inputs.delta, rtol=1e-4, atol=0)
    assert len(workloads.make_call(replace(CELL, backend="reference", L=5, backward=True, fused=True))()) == 8


def test_half_precision_is_ours_alone():
    assert peer_of(replace(CELL, dtype="bfloat16")).dtype == "float32"
    assert peer_of(replace(CELL, dtype="float64")).dtype == "float64"


# --- what is left out -------------------------------------------------------------------------------------------------


def test_what_needs_too_much_memory_is_left_out(monkeypatch):
    monkeypatch.setattr(workloads, "available_bytes", lambda device: 20 * 10**9)
    large = replace(peer_of(CELL), L=LONG, backward=True)
    assert scan._too_large(large) == ("it would need about 17 GB of memory, more than half of the 20 GB that are free")
    assert scan._too_large(replace(large, batch=1)) is None
    assert scan._too_large(replace(CELL, L=LONG, backward=True)) is None
    assert scan._too_large(replace(CELL, L=10**9)) is not None


def test_what_takes_too_long_is_left_out():
    cell = replace(CELL, backend="reference", L=1000)
    known = {replace(cell, L=10): 1e9, replace(cell, L=100): 0.2, replace(cell, L=500, discretization="zoh"): 1e9}
    assert scan._too_slow(cell, known, {}, allowed=2.0) is None
    assert scan._too_slow(cell, known, {}, allowed=1.5) == (
        "one call would take about 2.0 s; more than 1.5 s are not spent on it"
    )


def test_memory_of_the_machine_is_known():
    assert 10**8 < workloads.available_bytes("cpu") < 10**15


# --- ratios, rates and verdicts ---------------------------------------------------------------------------------------


def test_ratios_are_those_of_the_medians():
    result = made_up()
    assert result.times_faster_than_peer(CELL) == pytest.approx(100)
    assert result.times_faster_than_peer(replace(CELL, discretization="bil")) == pytest.approx(160)
    assert result.times_faster_than_peer(replace(CELL, backend="reference")) == pytest.approx(100 / 30)
    alone = without(result, "no peer", lambda cell: cell.backend != PEER)
    assert alone.times_faster_than_peer(CELL) is None


def test_what_threads_are_worth_to_the_machine_itself():
    assert made_up().gemm_speedup.median == pytest.approx(200 / 110)
    assert "2 threads are worth 1.82 times one to GEMM." in report.for_markdown(made_up(), "tustin bench scan")
    assert {limit.name: limit.threads for limit in scan._limits(OPTIONS)}["gemm_one_thread"] == 1
    assert [limit.name for limit in scan._limits(replace(OPTIONS, threads=1))] == ["gemm", "copy"]


def test_rates_follow_the_model():
    result = made_up()
    assert result.limits.gemm == pytest.approx(200e9)
    assert result.limits.copy == pytest.approx(20e9)
    rates = {rate.discretization: rate for rate in result.rates()}
    assert list(rates) == list(DISCRETIZATIONS)
    mamba = rates["mamba"]
    assert mamba.updates == pytest.approx(5e9)
    assert mamba.gemm_ratio == pytest.approx(40)
    assert mamba.attainable == pytest.approx(200e9 / 18)
    assert mamba.share == pytest.approx(18 / 40)
    assert mamba.traffic == pytest.approx(5e9 * 12 / 16)
    assert mamba.traffic_share == pytest.approx(5e9 * 12 / 16 / 20e9)


@needs_native
def test_the_operations_of_every_native_rule_are_counted():
    assert set(machine.MULTIPLICATIONS) == set(discretization_names())
    assert set(machine.DIVISIONS) <= set(machine.MULTIPLICATIONS)


def test_the_documentation_counts_the_same_operations():
    lines = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| `")]
    assert {rule: int(total) for rule, *_, total, _ in rows} == machine.MULTIPLICATIONS
    for rule, *parts, total, besides in rows:
        assert sum(int(part.split(":")[0]) for part in parts) == int(total), rule
        assert ("division" in besides) == (rule in machine.DIVISIONS)


def test_checks_say_what_was_measured():
    checks = {check.claim: check for check in made_up().checks()}
    assert len(checks) == 16
    measured = {claim: (check.measured, check.holds) for claim, check in checks.items()}
    assert measured["forward, mambapy : mamba"] == (100.0, True)
    assert measured["forward+backward, mambapy : mamba"] == (100.0, True)
    assert measured["GEMM FLOP/s : updates/s, mamba"] == (40.0, True)
    assert measured["GEMM FLOP/s : updates/s, mamba, stretch"] == (40.0, False)
    assert measured["GEMM FLOP/s : updates/s, bil"] == (25.0, True)
    assert measured["GEMM FLOP/s : updates/s, bil, stretch"] == (25.0, False)
    assert measured["forward, bil, rk4 : zoh"] == (1.0, True)
    assert checks["forward, bil, rk4 : zoh"].which == "rk4"
    assert measured["forward, foh, pol, hoh : zoh"] == (1.0, True)
    assert measured["forward, one thread : two"] == (1.9, True)
    assert measured["forward+backward, time per token, L 6085 : 197"] == (1.0, True)
    assert measured["forward, bfloat16 : float32"] == (0.9, True)


@pytest.mark.parametrize(
    ("claim", "slow", "factor", "measured"),
    [
        ("forward, mambapy : mamba", CELL, 1.3, 76.9),
        ("forward+backward, mambapy : mamba", replace(CELL, backward=True), 2.1, 47.6),
        ("forward, bil, rk4 : zoh", replace(CELL, discretization="rk4"), 1.01, 1.01),
        ("forward, foh, pol, hoh : zoh", replace(CELL, discretization="pol"), 1.3, 1.3),
        ("forward+backward, foh, pol, hoh : zoh", replace(CELL, discretization="hoh", backward=True), 1.21, 1.21),
        ("forward, one thread : two", replace(CELL, discretization="foh", threads=1), 0.9, 1.71),
        ("forward, time per token, L 6085 : 197", replace(CELL, discretization="zoh", L=LONG), 1.2, 1.2),
        ("forward+backward, bfloat16 : float32", replace(CELL, backward=True, dtype="bfloat16"), 1.2, 1.08),
    ],
)
def test_a_broken_promise_is_admitted(claim, slow, factor, measured):
    def find(cell):
        return summarize(laps(seconds(cell) * (factor if cell == slow else 1)))

    checks = {
        check.claim: check for check in check_all(CELL, tuple(DISCRETIZATIONS), find, made_up().limit_timings["gemm"])
    }
    assert checks[claim].measured == measured
    assert checks[claim].holds is False


def test_number_and_verdict_agree_after_rounding():
    def find(cell):
        return summarize(laps(seconds(cell) * (1.004 if cell.discretization == "rk4" else 1)))

    checks = {
        check.claim: check for check in check_all(CELL, tuple(DISCRETIZATIONS), find, made_up().limit_timings["gemm"])
    }
    check = checks["forward, bil, rk4 : zoh"]
    assert (check.measured, check.holds) == (1.0, True)


def test_a_verdict_that_noise_could_change_says_so():
    def find(cell):
        calls = (1.3, 1.0, 1.2, 0.9, 1.1, 1.3, 1.0) if cell.discretization == "pol" else (1.0,) * 7
        return summarize(laps(*(seconds(cell) * factor for factor in calls)))

    checks = {
        check.claim: check for check in check_all(CELL, tuple(DISCRETIZATIONS), find, made_up().limit_timings["gemm"])
    }
    broken = checks["forward, foh, pol, hoh : zoh"]
    assert (broken.measured, broken.interval, broken.which) == (1.1, (0.9, 1.3), "pol")
    assert (broken.holds, broken.decided) == (True, False)
    assert report.check_texts(broken) == ("≤ 1.25", "1.1 (pol)", "0.9 to 1.3", "undecided")
    assert report.check_texts(checks["forward, bil, rk4 : zoh"])[1:] == ("1 (rk4)", "1 to 1", "yes")


def test_those_that_are_compared_are_called_in_the_same_laps():
    expected = {cell: 0.001 for cell in plan(OPTIONS) if cell.backend != "reference"}
    workers = dict.fromkeys([cell.backend for cell in expected])
    parties = scan._parties(expected, workers, OPTIONS, scan.PATIENT)
    together = [set(party.members) for party in parties]
    for cell in (CELL, replace(CELL, backward=True)):
        others = {replace(cell, discretization="hoh"), *scan.variants(cell).values()}
        assert any({cell, *others} <= members for members in together)
        assert any({cell, replace(cell, L=LONG)} <= members for members in together)
    assert any({CELL, Limit("gemm", "cpu", 2), Limit("copy", "cpu", 2)} <= members for members in together)
    assert not any({CELL, peer_of(CELL)} <= members for members in together)
    assert {member for members in together for member in members if isinstance(member, Cell)} == set(expected)
    for party in parties:
        changes = sum(worker_module._work(a) != worker_module._work(b) for a, b in pairwise(party.members))
        assert changes <= (7 if LONG not in {getattr(member, "L", 0) for member in party.members} else 2 * 10)
        assert party.turns == OPTIONS.repeats


def test_slow_parties_take_fewer_turns_and_the_limits_need_no_company():
    workers = {"native": None, PEER: None}
    slow = {peer_of(CELL): 2.5, replace(peer_of(CELL), fused=True): 1.0}
    parties = scan._parties(slow, workers, OPTIONS, scan.PATIENT)
    assert [party.turns for party in parties] == [3, OPTIONS.repeats]
    assert {type(member) for member in parties[1].members} == {Limit}


def test_what_was_not_measured_is_not_claimed():
    few = made_up(replace(OPTIONS, discretizations=("bil",), lengths=(197,)))
    checks = {check.claim: check for check in few.checks()}
    for claim in ("forward, mambapy : mamba", "forward, bil, rk4 : zoh", "forward, time per token, L 6085 : 197"):
        assert (checks[claim].measured, checks[claim].holds) == (None, None)
    assert checks["forward, one thread : two"].holds is True
    for other in (
        replace(OPTIONS, threads=1),
        replace(OPTIONS, dtype="bfloat16"),
        replace(OPTIONS, batch_sizes=(4,)),
        replace(OPTIONS, lengths=(64,)),
    ):
        assert made_up(other).checks() == []


# --- tables -----------------------------------------------------------------------------------------------------------


def printed(monkeypatch, capsys, result, width=100):
    from tustin.cli import print_rich

    monkeypatch.setenv("COLUMNS", str(width))
    print_rich(lambda width: report.for_terminal(result, width))
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [80, 100, 200])
def test_tables_fit_and_lose_nothing(monkeypatch, capsys, width):
    out = printed(monkeypatch, capsys, made_up(), width)
    assert max(map(len, out.splitlines())) <= width
    assert "…" not in out
    rows = [line.split() for line in out.splitlines()]
    assert sum(row[:2] == ["native", "hoh3"] for row in rows) == (8 if width == 80 else 4)  # batch sizes times modes
    entries = [entry for row in rows if row[:2] == ["native", "bil"] for entry in row if entry.endswith("x")]
    assert entries == ["160x"] * 16
    assert ["mamba", "9", "11.11", "5.00", "45%", "40.0", "19%"] in rows
    assert ["GEMM", "FLOP/s", ":", "updates/s,", "bil", "≤", "35", "25", "–", "yes"] in rows
    assert "torch.compile: L up to 64 only" in out


def test_a_cell_shows_median_spread_and_ratio(monkeypatch, capsys):
    result = made_up(replace(OPTIONS, lengths=(197,), batch_sizes=(8,)))
    result.timings[CELL] = Timing(7, 0.0018, 0.002, 0.0022)
    result.timings[peer_of(CELL)] = Timing(7, 0.3, 0.3, 0.3)
    rows = [line.split() for line in printed(monkeypatch, capsys, result).splitlines()]
    assert ["native", "mamba", "2.00", "±10%", "150x"] in rows
    assert ["mambapy", "300", "±0%", "1.00x"] in rows


def test_what_was_left_out_is_told_once(monkeypatch, capsys):
    slow = without(made_up(), "too slow", lambda cell: cell.backend != "reference" or cell.L < LONG)
    out = printed(monkeypatch, capsys, slow)
    assert out.count("too slow") == 4
    assert "- reference of 9 rules, forward+backward, batch 8, L 6085: too slow" in out
    alone = without(made_up(), "get it with pip", lambda cell: cell.backend not in (PEER, PEER_KEEPING))
    out = printed(monkeypatch, capsys, alone)
    assert "- mambapy: get it with pip" in out
    assert out.count("- mambapy: ") == 1


def test_more_lengths_than_fit_make_more_tables(monkeypatch, capsys):
    out = printed(monkeypatch, capsys, made_up(replace(OPTIONS, lengths=(8, 16, 64, 197, 785, 6085))))
    assert max(map(len, out.splitlines())) <= 100
    assert out.count("Forward, batch 8") == 2


def test_a_busy_machine_is_mentioned():
    quiet = made_up()
    assert "do not trust" not in " ".join(report.summary(quiet))
    busy = replace(quiet, machine=quiet.machine | {"load": 2.3})
    assert "(load 2.3), do not trust it" in " ".join(report.summary(busy))


def test_the_load_is_what_the_cores_do_now(monkeypatch, tmp_path):
    stat = tmp_path / "stat"
    stat.write_text("cpu  10 20 30 400 50 1 2 3 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n", encoding="ascii")
    monkeypatch.setattr(machine, "_STAT", stat)
    assert machine._busy_ticks() == 10 + 20 + 30 + 1 + 2 + 3
    assert machine._load(0.01) == 0
    stat.unlink()
    monkeypatch.setattr("os.getloadavg", lambda: (1.5, 0.0, 0.0))
    assert machine._load() == 1.5


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0523, "0.052"), (3.041, "3.04"), (12.34, "12.3"), (99.97, "100"), (494.4, "494"), (20891.0, "20891")],
)
def test_three_digits_and_no_exponent(value, text):
    assert report.number(value) == text


# --- Markdown ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(f"# Title\n\nbefore\n\n{files.SCAN.begin}\nstale\n{files.SCAN.end}\n\nafter\n", encoding="utf-8")
    return path


def test_markdown_replaces_its_block_only_and_twice_is_once(page):
    block = report.for_markdown(made_up(), "tustin bench scan")
    files.SCAN.replace(page, block)
    once = page.read_text(encoding="utf-8")
    assert once.startswith(f"# Title\n\nbefore\n\n{files.SCAN.begin}\n\nMeasured by `tustin bench scan`. AMD EPYC")
    assert once.endswith(f"\n\n{files.SCAN.end}\n\nafter\n")
    assert "stale" not in once
    assert "| forward, mambapy : mamba | ≥ 80 | 100 | – | yes |" in once
    files.SCAN.replace(page, block)
    assert page.read_text(encoding="utf-8") == once
    assert [path.name for path in page.parent.iterdir()] == ["page.md"]


def test_a_failed_write_leaves_the_page_and_nothing_else(page, monkeypatch):
    before = page.read_bytes()

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        files.SCAN.replace(page, "new")
    assert page.read_bytes() == before
    assert [path.name for path in page.parent.iterdir()] == ["page.md"]


def test_writing_keeps_permissions_and_links(page, tmp_path):
    page.chmod(0o640)
    link = tmp_path / "link.md"
    link.symlink_to(page)
    files.SCAN.replace(link, "new")
    assert link.is_symlink()
    assert "new" in page.read_text(encoding="utf-8")
    assert page.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    "text", ["nothing", files.SCAN.begin, files.SCAN.end + files.SCAN.begin, 2 * (files.SCAN.begin + files.SCAN.end)]
)
def test_a_page_needs_its_two_marks(text):
    with pytest.raises(ValueError, match=r"page\.md must have one line"):
        files.SCAN.split(text, "page.md")


def test_the_documentation_has_the_marks():
    files.SCAN.split((ROOT / "docs" / "performance.md").read_text(encoding="utf-8"), "docs/performance.md")


# --- the processes ----------------------------------------------------------------------------------------------------


@pytest.fixture
def worker():
    worker = Worker({"TUSTIN_BENCH_TEST": "1"})
    yield worker
    worker.close()


def test_a_worker_answers_fails_in_words_and_its_death_is_noticed(worker):
    assert "TUSTIN_BENCH_TEST" not in os.environ
    small = replace(CELL, backend="reference", batch=1, L=2, threads=1)
    first, second = worker.first_calls(small)
    assert first > 0
    assert second > 0
    assert all(seconds > 0 for (seconds,) in worker.laps([small, Limit("gemm", "cpu", 1)], [[1, 0]], 0.0))
    with pytest.raises(RuntimeError, match="ValueError: unknown discretization 'bill'"):
        worker.first_calls(replace(small, discretization="bill"))
    worker._process.kill()
    with pytest.raises(RuntimeError, match=r"ended with code -9; if that is -9, the system ran out of memory"):
        worker.first_calls(small)


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["bench", "scans"], ["'scans'", "did you mean 'scan'"]),
        (["bench", "scan", "--discretizations", "bill"], ["'bill'", "did you mean 'bil'"]),
        (["bench", "scan", "--lengths", "0"], ["--lengths", "at least 1", "'0'"]),
        (["bench", "scan", "--lengths", "-5"], ["--lengths"]),
        (["bench", "scan", "--lengths", "many"], ["--lengths", "'many'"]),
        (["bench", "scan", "--lengths"], ["--lengths"]),
        (["bench", "scan", "--batch-sizes", "1.5"], ["--batch-sizes", "'1.5'"]),
        (["bench", "scan", "--threads", "0"], ["--threads", "at least 1"]),
        (["bench", "scan", "--threads", "100000"], ["--threads", "cores"]),
        (["bench", "scan", "--repeats", "0"], ["--repeats"]),
        (["bench", "scan", "--dtype", "int8"], ["--dtype", "float32"]),
        (["bench", "scan", "--layout", "diagonal"], ["--layout", "channel-last"]),
        (["bench", "scan", "--backends", "cuda"], ["--backends", "native"]),
        (["bench", "scan", "--json", "no/such/folder/x.json"], ["no/such/folder/x.json", "No such file"]),
        (["bench", "scan", "--json", "."], ["Is a directory"]),
        (["bench", "scan", "--markdown", "missing.md"], ["missing.md", "No such file"]),
        (["bench", "scan", "surplus"], ["surplus"]),
    ],
)
def test_nonsense_is_refused_in_one_line_before_anything_is_measured(capsys, monkeypatch, argv, words):
    monkeypatch.setattr(scan, "run", lambda *args: pytest.fail("it was measured"))
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("tustin: error: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err


def test_a_page_without_marks_is_refused(capsys, tmp_path):
    path = tmp_path / "page.md"
    path.write_text("nothing here")
    assert main(["bench", "scan", "--markdown", str(path)]) == 2
    assert "must have one line" in capsys.readouterr().err


def test_bench_alone_lists_the_benchmarks(capsys):
    assert main(["bench"]) == 0
    assert "tustin bench scan --quick" in capsys.readouterr().out


@pytest.fixture
def measured(monkeypatch):
    """`scan.run` gives made-up results, and notes the options it was given."""
    seen = []

    def run(options, show):
        seen.append(options)
        show("round 1 of 1", 1, 1)
        return made_up(options)

    monkeypatch.setattr(scan, "run", run)
    return seen


def test_defaults_are_the_grid_of_the_issue(measured, capsys):
    assert main(["bench", "scan", "--threads", "2"]) == 0
    assert main(["bench", "scan", "--threads", "2", "--quick"]) == 0
    assert measured[0] == OPTIONS
    assert measured[1] == replace(
        OPTIONS, lengths=(197, 6085), batch_sizes=(8,), repeats=3, quick=True, backends=("native", "mambapy")
    )
    assert "tustin bench: round 1 of 1, 1 of 1 done" in capsys.readouterr().err


def test_files_are_written_and_named(measured, capsys, page, tmp_path):
    target = tmp_path / "scan.json"
    argv = [
        "bench",
        "scan",
        "--discretizations",
        "zoh",
        "bil",
        "zoh",
        "--threads",
        "2",
        "--json",
        str(target),
        "--markdown",
    ]
    assert main([*argv, str(page)]) == 0
    out, err = capsys.readouterr()
    assert "Forward, batch 1" in out
    assert f"tustin: wrote {target}" in err
    assert f"tustin: wrote {page}" in err
    assert json.loads(target.read_text(encoding="utf-8"))["options"]["discretizations"] == ["zoh", "bil"]
    assert "`tustin bench scan --discretizations zoh bil zoh --threads 2`" in page.read_text(encoding="utf-8")


def test_json_holds_everything(measured, capsys):
    assert main(["bench", "scan", "--threads", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told) == [
        *("tustin", "date", "options", "shape", "machine", "limits", "cells", "compile_seconds", "rates", "checks")
    ]
    assert told["shape"] == {"D": 384, "N": 16}
    assert told["limits"]["gemm_flop_per_second"] == pytest.approx(200e9)
    cell = next(c for c in told["cells"] if c["L"] == 197 and c["batch"] == 8 and c["discretization"] == "bil")
    assert cell["backend"] == "native"
    assert list(cell["seconds"]) == ["calls", "low", "median", "high", "laps"]
    assert cell["times_faster_than_mambapy"] == pytest.approx(160)
    assert cell["skipped_because"] is None
    assert {"discretization", "updates", "gemm_ratio", "attainable", "share"} <= set(told["rates"][0])
    assert list(told["checks"][0]) == [
        *("claim", "relation", "bound", "measured", "which", "interval", "holds", "decided")
    ]
    assert told["checks"][0]["holds"] is True


# --- on a GPU ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(options, "no_gpu_because", lambda kind: None)


def test_without_a_gpu_it_says_so_in_one_sentence(capsys, monkeypatch):
    monkeypatch.setattr(options, "no_gpu_because", lambda kind: f"no {kind} device was found")
    assert main(["bench", "scan", "--device", "cuda"]) == 1
    assert capsys.readouterr().err == "tustin: error: --device cuda: no cuda device was found\n"


def test_on_a_gpu_triton_runs_beside_mamba_ssm(measured, gpu, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["bench", "scan", "--threads", "2", "--device", "cuda", "--lengths", "197", "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert {cell["device"] for cell in cells} == {"cuda"}
    assert {cell["backend"] for cell in cells} == {"triton", "mamba_ssm", "reference"}
    assert {cell["layout"] for cell in cells if cell["backend"] == "mamba_ssm"} == {"token-last"}
    assert {cell["fused"] for cell in cells if cell["backend"] == "mamba_ssm"} == {False, True}
    assert all(cell["times_faster_than_mamba_ssm"] for cell in cells if cell["dtype"] == "float32")
    assert main(["bench", "scan", "--threads", "2", "--device", "cuda", "--lengths", "197"]) == 0
    out = capsys.readouterr().out
    assert "triton bil" in out
    assert "mamba_ssm, fused" in out
    assert "how many times faster than mamba_ssm" in out
    assert "native bil" not in out


def test_a_backend_of_the_other_device_is_refused(measured, gpu, capsys):
    assert main(["bench", "scan", "--device", "cuda", "--backends", "native"]) == 1
    assert "native is not measured on cuda; there are triton, mamba_ssm, reference" in capsys.readouterr().err


def test_mamba_ssm_is_called_with_the_arguments_of_the_scan(monkeypatch):
    """A stand-in with its signature: the same numbers, laid out by token, with everything fused."""
    interface = ModuleType("mamba_ssm.ops.selective_scan_interface")
    interface.selective_scan_fn = functools.partial(selective_scan, backend="reference")
    monkeypatch.setitem(sys.modules, "mamba_ssm", ModuleType("mamba_ssm"))
    monkeypatch.setitem(sys.modules, "mamba_ssm.ops", ModuleType("mamba_ssm.ops"))
    monkeypatch.setitem(sys.modules, "mamba_ssm.ops.selective_scan_interface", interface)
    assert workloads.missing(GPU_PEER) is None
    for fused in (False, True):
        ours = replace(CELL, backend="reference", L=5, fused=fused)
        theirs = replace(ours, backend=GPU_PEER, layout="token-last")
        torch.testing.assert_close(workloads.make_call(theirs)(), workloads.make_call(ours)())


def test_without_mamba_ssm_the_reader_is_told_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "mamba_ssm", None)
    assert "get it with 'pip install mamba-ssm'" in workloads.missing(GPU_PEER)


def test_calls_on_a_gpu_are_queued_and_waited_for(monkeypatch):
    done = []
    monkeypatch.setattr(workloads, "make_call", lambda cell: lambda: done.append("call"))
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: done.append("wait"))
    worker_module._laps([replace(CELL, backend="triton", device="cuda")], [[0]], 0.0)
    assert done[-11:] == ["call"] * 10 + ["wait"]


# --- real runs, small -------------------------------------------------------------------------------------------------


@needs_native
def test_a_small_run_measures_ours_the_peer_and_the_machine(capsys):
    pytest.importorskip("mambapy")
    assert main(["bench", "scan", *SMALL, "--backends", "native", "mambapy", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    measured = {(cell["backend"], cell["backward"]) for cell in told["cells"] if cell["seconds"]}
    assert measured == {(backend, backward) for backend in ("native", PEER, PEER_KEEPING) for backward in (False, True)}
    for cell in told["cells"]:
        timed = cell["seconds"]
        assert 0 < timed["low"] <= timed["median"] <= timed["high"]
        assert timed["calls"] >= 1
    assert told["rates"][0]["share"] > 0
    assert told["checks"] == []
    assert told["limits"]["copy_bytes_per_second"] > 1e8


@needs_native
def test_without_the_peer_the_rest_is_measured_and_the_reader_told(capsys, monkeypatch):
    for name in ("mambapy", "mambapy.mamba"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["bench", "scan", *SMALL, "--backends", "native", "mambapy"]) == 0
    out = capsys.readouterr().out
    assert "- mambapy: mambapy, the peer, is not installed (" in out
    assert "get it with 'pip install mambapy'" in out
    row = next(line.split() for line in out.splitlines() if line.startswith("native bil "))
    assert len(row) == 4  # name, ms and spread, but no ratio


def test_the_script_is_the_command():
    shown = [
        subprocess.run(
            [sys.executable, *argv, "--help"], capture_output=True, text=True, timeout=120, check=True
        ).stdout
        for argv in ([str(ROOT / "benchmarks" / "scan.py")], ["-m", "tustin.cli", "bench", "scan"])
    ]
    assert shown[0] == shown[1]
    assert "--quick" in shown[0]
