"""A result of `tustin bench scan` with numbers made up so that every ratio is known."""

from dataclasses import replace

from tests.systems import FUSED
from tustin.bench.scan import cells, limit_cases
from tustin.bench.workloads import COMPILED, GPU_PEER, PEER, PEER_KEEPING, Cell
from tustin.cli.bench_arguments import BACKENDS
from tustin.report.measurement import Options, Result
from tustin.report.timing import Lap, Timing

OPTIONS = Options(
    discretizations=tuple(FUSED),
    lengths=(64, 197, 785, 6085),
    batch_sizes=(1, 8),
    threads=2,
    rounds=7,
    backends=BACKENDS,
)
CELL = Cell("native", "mamba", 8, 197, False, "float32", "channel-last", threads=2)
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
LIMITS = {  # 200 GFLOP/s, 110 of them on one thread, and 20 GB/s
    "gemm": 2 * 1024**3 / 200e9,
    "gemm_one_thread": 2 * 1024**3 / 110e9,
    "copy": 2 * 2**26 / 20e9,
}


def seconds(cell: Cell) -> float:
    """The backward pass takes twice as long as the forward pass, one thread 1.9 times as long as two."""
    rule = "mamba" if cell.backend in (PEER, PEER_KEEPING, GPU_PEER) else cell.discretization
    forward = cell.updates / UPDATES_PER_SECOND.get(rule, 4e9) * SLOWER.get(cell.backend, 1.0)
    forward *= 0.9 if cell.dtype == "bfloat16" else 1.0
    return forward * (3 if cell.backward else 1) * (1.9 if cell.threads == 1 else 1)


def laps(*calls: float, party: int = 0, round: int = 0) -> dict[Lap, float]:
    return {Lap(party, round, number): call for number, call in enumerate(calls)}


def timing(*calls: float) -> Timing:
    return Timing(laps(*calls))


def alone(median: float, party: int, spread: float = 0.0) -> Timing:
    """With quartiles at that distance from the median, in a party and a round of its own: ratios are of medians."""
    return Timing(laps(*(median * (1 + step * spread) for step in (-2, -1, 0, 1, 2)), party=party, round=party))


def made_up(options: Options = OPTIONS, **changes: object) -> Result:
    """A complete result; `changes` replaces some of its fields."""
    medians = {cell: seconds(cell) for cell in cells(options)}
    medians |= {limit: LIMITS[limit.name] for limit in limit_cases(options)}
    timings = {
        case: alone(median, place, 0.05 if isinstance(case, Cell) else 0.0)
        for place, (case, median) in enumerate(medians.items())
    }
    result = Result(
        benchmark="scan",
        command="tustin bench scan",
        date="2026-01-02",
        options=options,
        machine=MACHINE,
        rounds=7,
        processes=1,
        timings=timings,
        notes={"compile_seconds": 12.0},
    )
    return replace(result, **changes)


def without(result: Result, reason: str, keep) -> Result:
    """The result as if the cells that `keep` refuses had been skipped."""
    lost = {case for case in result.timings if isinstance(case, Cell) and not keep(case)}
    kept = {case: timing for case, timing in result.timings.items() if case not in lost}
    return replace(result, timings=kept, skipped={case: reason for case in result.timings if case in lost})
