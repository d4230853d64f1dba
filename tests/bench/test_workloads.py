"""What is timed of the scan: the same work for all, on the device and level that the cell says."""

import functools
import sys
from dataclasses import replace
from types import ModuleType

import pytest
import torch

from tests.bench.results import CELL, OPTIONS
from tests.native import needs_native
from tustin import selective_scan
from tustin.bench import workloads
from tustin.bench.scan import cells
from tustin.bench.workloads import GPU_PEER, Cell, peer_of
from tustin.ops import native


@needs_native
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("layout", ["channel-last", "token-last"])
def test_peer_and_ours_do_the_same_work(backward, layout):
    pytest.importorskip("mambapy")
    cell = Cell("native", "mamba", 2, 37, backward, "float32", layout)
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


def test_memory_of_the_machine_is_known():
    assert 10**8 < workloads.available_bytes("cpu") < 10**15


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


@needs_native
def test_a_cell_runs_on_its_level() -> None:
    before = native.cpu_level()
    own = [
        cell
        for cell in cells(
            replace(OPTIONS, discretizations=("mamba", "bil"), levels=tuple(native.cpu_levels()), threads=1)
        )
        if not cell.backward
    ]
    try:
        outputs = {}
        for cell in own:
            outputs[cell.level, cell.discretization] = workloads.make_call(replace(cell, batch=1, L=8))()
            assert native.cpu_level() == cell.level
    finally:
        native.set_cpu_level(before)
    assert all(isinstance(out, torch.Tensor) and out.isfinite().all() for out in outputs.values())
