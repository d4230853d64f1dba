"""Triton's scan: its values in the interpreter, its place among the backends, and a machine without Triton."""

from dataclasses import replace

import pytest
import torch

from tests.interpreter import needs_triton, run_interpreted
from tests.native import run_python
from tests.systems import CPU, FUSED, system
from tustin import DISCRETIZATIONS, selective_scan
from tustin.ops.dispatch import choose
from tustin.ops.scan import BACKENDS

FILE = "tests/ops/scan/interpreted_triton.py"
each_gpu = pytest.mark.parametrize("device", ["cuda", "xpu"])


@needs_triton
@pytest.mark.parametrize("part", ["every_argument", "shapes_layouts", "not every_argument and not shapes_layouts"])
def test_in_the_interpreter(part: str) -> None:
    """Coefficients, values, gradients, shapes, layouts, dtypes, extremes; in processes of their own."""
    assert " passed" in run_interpreted(FILE, "-k", part, seconds=1800)


@needs_triton
@pytest.mark.wide
def test_widely_in_the_interpreter() -> None:
    """More and larger shapes, and the tokens of an image with the initial values of real models."""
    assert " passed" in run_interpreted(FILE, "-m", "wide", seconds=4 * 3600)


@needs_triton
def test_discretizations_are_the_registered_ones() -> None:
    """Same names in the same order: none is missing, and none is unreachable."""
    from tustin.ops.scan import triton_discretizations

    assert list(triton_discretizations.DISCRETIZATIONS) == list(FUSED)


# ── the choice ───────────────────────────────────────────────────────────────────────────────────────────────────────


@needs_triton
def test_not_on_a_cpu_tensor() -> None:
    with pytest.raises(
        RuntimeError, match="'triton' cannot be used: it runs on GPUs, and the tensors are on cpu; its in"
    ):
        selective_scan(**system(), backend="triton")


@needs_triton
@each_gpu
@pytest.mark.parametrize("discretization", FUSED)
def test_auto_takes_it_on_a_gpu(discretization: str, device: str) -> None:
    """Without a word: it is the fast one there."""
    assert choose("selective_scan", "auto", torch.device(device), DISCRETIZATIONS[discretization]) == "triton"


@needs_triton
@each_gpu
def test_a_discretization_of_ones_own_runs_on_the_reference_and_says_so_once(device: str) -> None:
    mine = replace(DISCRETIZATIONS["bil"], name="mine")
    with pytest.warns(UserWarning, match="because the triton backend cannot run it: discretization 'mine' is"):
        assert choose("selective_scan", "auto", torch.device(device), mine) == "reference"
    # a second warning would be an error
    assert choose("selective_scan", "auto", torch.device(device), mine) == "reference"
    with pytest.raises(
        RuntimeError, match="'triton' cannot be used: discretization 'mine' is not one of those compiled"
    ):
        choose("selective_scan", "triton", torch.device(device), mine)
    imitation = replace(DISCRETIZATIONS["zoh"], coefficients=DISCRETIZATIONS["bil"].coefficients)
    assert BACKENDS["triton"].refuses(torch.device(device), imitation)


@needs_triton
@each_gpu
def test_float64_runs_on_the_reference_and_says_so(device: str) -> None:
    rule, dtype = DISCRETIZATIONS["zoh"], torch.float64
    with pytest.warns(UserWarning, match="because the triton backend cannot run it: it has no float64"):
        assert choose("selective_scan", "auto", torch.device(device), rule, dtype) == "reference"


@needs_triton
def test_registered_for_gpus() -> None:
    for name in ("selective_scan", "selective_scan_backward"):
        for key in ("CPU", "CUDA", "XPU"):
            assert torch._C._dispatch_has_kernel_for_dispatch_key(f"tustin::{name}", key)


# ── a machine without Triton ─────────────────────────────────────────────────────────────────────────────────────────


def test_without_triton_it_says_how_to_get_it(no_triton: None) -> None:
    with pytest.raises(RuntimeError, match="'triton' cannot be used: Triton is not installed; get it with 'pip inst"):
        selective_scan(**system(), backend="triton")


def test_without_triton_a_gpu_takes_the_reference_and_says_so(no_triton: None) -> None:
    with pytest.warns(UserWarning, match="because the triton backend cannot run it: Triton is not inst"):
        assert choose("selective_scan", "auto", torch.device("cuda", 5), DISCRETIZATIONS["zoh"]) == "reference"


def test_nobody_imports_triton_unasked() -> None:
    """It takes a second, and many machines have none."""
    done = run_python(
        "import sys, torch\n"
        "before = 'triton' in sys.modules\n"
        "from tustin import selective_scan\n"
        "x, a = torch.ones(1, 2, 3, requires_grad=True), -torch.ones(2, 1)\n"
        "selective_scan(x, x, a, a, a, discretization='zoh').sum().backward()\n"
        "assert before or 'triton' not in sys.modules"
    )
    assert done.returncode == 0, done.stderr


# ── how the work is cut ──────────────────────────────────────────────────────────────────────────────────────────────


def work(batch: int, D: int, L: int, N: int, groups: int = 1, states_per_warp: int = 128):
    from tustin.ops.scan.triton import _Work

    matrix = torch.empty(batch, groups, N, L, device="meta")
    u, A = torch.empty(batch, D, L, device="meta"), torch.empty(D, N, device="meta")
    return _Work(u, A, matrix, matrix, states_per_warp)


@needs_triton
@pytest.mark.parametrize("D", [1, 5, 384, 768, 4099])
@pytest.mark.parametrize("N", [1, 7, 16, 64, 256])
@pytest.mark.parametrize(("batch", "L"), [(1, 1), (1, 197), (1, 65536), (64, 197), (1000, 3)])
def test_segments_and_blocks_cover_everything_once(D: int, N: int, batch: int, L: int) -> None:
    """The segments, whole chunks each, reach the last token; the blocks the last channel; neither more than needed."""
    from tustin.ops.scan.triton import CHUNK, ENOUGH_PROGRAMS, SHORTEST_SEGMENT

    cut = work(batch, D, L, N)
    blocks, segments, samples = cut.grid
    *_, length = cut.sizes
    block = cut.constants()["BLOCK_D"]
    assert (blocks - 1) * block < D <= blocks * block
    assert (segments - 1) * length < L <= segments * length
    assert length % CHUNK == 0
    assert samples == batch
    if segments > 1:
        assert blocks * batch < ENOUGH_PROGRAMS
        assert length >= SHORTEST_SEGMENT


@needs_triton
def test_few_rows_are_cut_in_time_and_many_are_not() -> None:
    assert work(64, 384, 197, 16).segments == 1
    assert work(1, 384, 8192, 16).segments > 8


@needs_triton
@pytest.mark.parametrize("groups", [1, 2, 6, 12])
def test_no_block_crosses_a_group(groups: int) -> None:
    """Channels of one program share B and C."""
    cut = work(1, 12, 5, 4, groups)
    assert cut.blocks % groups == 0
    assert cut.constants("GROUP_B")["GROUP_B"] == 12 // groups


def test_it_runs_every_discretization_on_a_gpu_only() -> None:
    assert all(BACKENDS["triton"].refuses(CPU, discretization) for discretization in DISCRETIZATIONS.values())
