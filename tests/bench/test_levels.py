"""`tustin bench scan --levels`: the instruction sets of a CPU beside each other."""

from dataclasses import replace

import pytest
import torch

from tests.native import needs_native
from tustin.bench import report, workloads
from tustin.bench.scan import plan
from tustin.bench.timing import Timing
from tustin.cli import main
from tustin.ops import native

from .results import OPTIONS, made_up

LEVELS = ("v4", "v3", "v2")
FEW = replace(OPTIONS, discretizations=("mamba", "bil"), levels=LEVELS)


def test_every_rule_on_every_level_in_both_directions_on_one_thread_and_on_all() -> None:
    cells = plan(FEW)
    assert len(cells) == len(set(cells)) == 2 * 3 * 2 * 2
    assert {(cell.batch, cell.L, cell.backend) for cell in cells} == {(8, 197, "native")}
    assert {cell.threads for cell in plan(replace(FEW, threads=1))} == {1}


def test_times_are_relative_to_the_best_level() -> None:
    slower = {"v4": 1.0, "v3": 1.1, "v2": 3.0}
    result = made_up(FEW)
    timings = {cell: Timing(7, 0.0, 0.002 * slower[cell.level], 0.0) for cell in result.timings}
    tables = report.tables(replace(result, timings=timings), 80)
    assert tables[0].title == "Instruction sets: forward, batch 8, L 197, 1 thread"
    assert len(tables) == 4
    assert tables[0].header == ("", "v4, ms", "v3 : v4", "v2 : v4")
    assert tables[0].rows[1] == ("bil", "2.00", "1.10", "3.00")
    assert not result.checks()
    assert not result.rates()


@needs_native
def test_a_cell_runs_on_its_level() -> None:
    before = native.cpu_level()
    cells = [cell for cell in plan(replace(FEW, levels=tuple(native.cpu_levels()), threads=1)) if not cell.backward]
    try:
        outputs = {}
        for cell in cells:
            outputs[cell.level, cell.discretization] = workloads.make_call(replace(cell, batch=1, L=8))()
            assert native.cpu_level() == cell.level
    finally:
        native.set_cpu_level(before)
    assert all(isinstance(out, torch.Tensor) and out.isfinite().all() for out in outputs.values())


@pytest.mark.parametrize("words", [["--device", "cuda"], ["--markdown", "docs/performance.md"]])
def test_it_is_for_the_cpu_and_for_no_page(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tustin.bench.options.no_gpu_because", lambda device: None)
    assert main(["bench", "scan", "--levels", *words]) == 1
    assert "--levels compares what the native backend has" in capsys.readouterr().err
