"""The tables of `tustin bench scan`: they fit, lose nothing, and say what was left out."""

from dataclasses import replace

import pytest

from tests.bench.results import CELL, OPTIONS, alone, made_up, without
from tustin.bench import scan_tables
from tustin.bench.checks import LONG
from tustin.bench.scan import Scans, limit_cases
from tustin.bench.workloads import PEER, PEER_KEEPING, Cell, peer_of
from tustin.cli.output import print_rich

FEW = replace(OPTIONS, discretizations=("mamba", "bil"), levels=("v4", "v3", "v2"))


def test_what_threads_are_worth_to_the_machine_itself():
    assert "GEMM is 1.82 times faster with 2 threads than with one." in scan_tables.outcome(made_up()).as_markdown(
        None, 3
    )
    assert {limit.name: limit.threads for limit in limit_cases(OPTIONS)}["gemm_one_thread"] == 1
    assert [limit.name for limit in limit_cases(replace(OPTIONS, threads=1))] == ["gemm", "copy"]


def printed(monkeypatch, capsys, result, width=100):
    monkeypatch.setenv("COLUMNS", str(width))
    print_rich(*scan_tables.outcome(result).for_terminal())
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
    result.timings[CELL] = alone(0.002, 1000, 0.1)
    result.timings[peer_of(CELL)] = alone(0.3, 1001)
    rows = [line.split() for line in printed(monkeypatch, capsys, result).splitlines()]
    assert ["native", "mamba", "2.00", "±10%", "150x"] in rows
    assert ["mambapy", "300", "±0%", "1.00x"] in rows


def test_what_was_left_out_is_told_once(monkeypatch, capsys):
    slow = without(made_up(), "too slow", lambda cell: cell.backend != "reference" or cell.L < LONG)
    out = printed(monkeypatch, capsys, slow)
    assert out.count("too slow") == 4
    rules = f"{len(OPTIONS.discretizations)} rules"
    assert f"- reference of {rules}, forward+backward, batch 8, L 6085: too slow" in out
    alone = without(made_up(), "get it with pip", lambda cell: cell.backend not in (PEER, PEER_KEEPING))
    out = printed(monkeypatch, capsys, alone)
    assert "- mambapy: get it with pip" in out
    assert out.count("- mambapy: ") == 1


def test_a_busy_machine_is_mentioned():
    quiet = made_up()
    assert "do not trust" not in scan_tables.summary(quiet)
    busy = replace(quiet, machine=quiet.machine | {"load": 2.3})
    assert "(load 2.3): do not trust" in scan_tables.summary(busy)


def test_times_are_relative_to_the_best_level() -> None:
    slower = {"v4": 1.0, "v3": 1.1, "v2": 3.0}
    result = made_up(FEW)
    cells = [case for case in result.timings if isinstance(case, Cell)]
    timings = {cell: alone(0.002 * slower[cell.level], place) for place, cell in enumerate(cells)}
    tables = scan_tables.tables(Scans(replace(result, timings=timings)))
    assert tables[0].title == "Instruction sets: forward, batch 8, L 197, 1 thread"
    assert len(tables) == 4
    assert tables[0].header == ("", "v4, ms", "v3 : v4", "v2 : v4")
    assert tables[0].rows[1] == ("bil", "2.00", "1.10", "3.00")
    assert not Scans(result).checks()
    assert not Scans(result).rates()
