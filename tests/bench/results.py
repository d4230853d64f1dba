"""A result of the benchmark with numbers made up so that every ratio is known."""

from dataclasses import replace

from tustin import DISCRETIZATIONS
from tustin.bench.options import BACKENDS, Options
from tustin.bench.scan import Result, plan
from tustin.bench.timing import Timing
from tustin.bench.workloads import COMPILED, GPU_PEER, PEER, PEER_KEEPING, Cell

OPTIONS = Options(
    discretizations=tuple(DISCRETIZATIONS),
    lengths=(64, 197, 785, 6085),
    batch_sizes=(1, 8),
    dtype="float32",
    layout="channel-last",
    threads=2,
    repeats=7,
    backends=BACKENDS,
    quick=False,
)
MACHINE = {
    "versions": {"tustin": "1.2.3", "python": "3.11.7", "torch": "2.6.0", "numpy": "2.0.0", PEER: "1.2.0"},
    "platform": "Linux",
    "cpu": {"model": "AMD EPYC", "cores": 2},
    "gpu": None,
    "load": 0.1,
    "native_level": "v3",
}
UPDATES_PER_SECOND = {"mamba": 5e9, "bil": 8e9}  # on two threads; the other rules 4e9
SLOWER = {"reference": 30.0, COMPILED: 10.0, PEER: 100.0, PEER_KEEPING: 50.0, GPU_PEER: 2.0}


def seconds(cell: Cell) -> float:
    """The backward pass takes twice as long as the forward pass, one thread 1.9 times as long as two."""
    rule = "mamba" if cell.backend in (PEER, PEER_KEEPING, GPU_PEER) else cell.discretization
    forward = cell.updates / UPDATES_PER_SECOND.get(rule, 4e9) * SLOWER.get(cell.backend, 1.0)
    forward *= 0.9 if cell.dtype == "bfloat16" else 1.0
    return forward * (3 if cell.backward else 1) * (1.9 if cell.threads == 1 else 1)


def made_up(options: Options = OPTIONS, **changes: object) -> Result:
    """A complete result; `changes` replaces some of its fields."""
    medians = {cell: seconds(cell) for cell in plan(options)}
    result = Result(
        options=options,
        date="2026-01-02",
        machine=MACHINE,
        timings={cell: Timing(7, 0.95 * median, median, 1.05 * median) for cell, median in medians.items()},
        skipped={},
        limit_timings={  # 200 GFLOP/s, 110 of them on one thread, and 20 GB/s
            "gemm": Timing(7, 2 * 1024**3 / 200e9, 2 * 1024**3 / 200e9, 2 * 1024**3 / 200e9),
            "gemm_one_thread": Timing(7, 2 * 1024**3 / 110e9, 2 * 1024**3 / 110e9, 2 * 1024**3 / 110e9),
            "copy": Timing(7, 2 * 2**26 / 20e9, 2 * 2**26 / 20e9, 2 * 2**26 / 20e9),
        },
        compile_seconds=12.0,
    )
    return replace(result, **changes)


def without(result: Result, reason: str, keep) -> Result:
    """The result as if the cells that `keep` refuses had been skipped."""
    kept = {cell: timing for cell, timing in result.timings.items() if keep(cell)}
    return replace(result, timings=kept, skipped={cell: reason for cell in result.timings if not keep(cell)})
