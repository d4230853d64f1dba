"""Two builds of the native library side by side: the time that each rule takes with NEW, by that with OLD.

    python benchmarks/libraries.py OLD.so NEW.so --levels v3

Both run in turns in one process, on one thread and on the same tensors, so that whatever else the machine does meets
both alike. A ratio is the median over all turns, and then come its quartiles.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
from dataclasses import replace
from unittest import mock

import torch

from tustin import DISCRETIZATIONS
from tustin.bench.worker import in_laps, time_once
from tustin.bench.workloads import Cell, make_call
from tustin.ops import native


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", nargs=2, metavar="LIBRARY")
    parser.add_argument("--levels", default="v3", help="CPU level of both, or with a comma of each (default: v3)")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--shape", type=int, nargs=2, default=[4, 197], metavar=("BATCH", "L"))
    parser.add_argument("--discretizations", default=",".join(DISCRETIZATIONS), help="with commas between them")
    args = parser.parse_args()
    torch.set_num_threads(1)
    libraries = [ctypes.CDLL(path) for path in args.libraries]
    levels = args.levels.split(",")
    for library, level in zip(libraries, levels * (3 - len(levels)), strict=True):
        if library.tustin_set_cpu_level(level.encode()):
            raise SystemExit(f"level {level} is not in {library._name}, or not on this CPU")
    print(f"{'rule':8} {'forward':>22} {'forward+backward':>22}")
    for rule in args.discretizations.split(","):
        cell = Cell("native", rule, *args.shape, False, "float32", "channel-last", fused=True)
        ratios = [quartiles(libraries, replace(cell, backward=back), args.rounds) for back in (False, True)]
        texts = (f"{middle:8.3f} ({low:.3f}-{high:.3f})" for low, middle, high in ratios)
        print(f"{rule:8} {' '.join(texts)}", flush=True)


def quartiles(libraries: list[ctypes.CDLL], cell: Cell, rounds: int) -> list[float]:
    """Of the times with the second library by those with the first."""
    run = make_call(cell)

    def call(which: int) -> float:
        with mock.patch.object(native, "call", lambda name, packed, _: getattr(libraries[which], name)(packed)):
            return time_once(run)

    old, new = (calls[2:] for calls in in_laps(call, [[0, 1], [1, 0]], 1e9, rounds + 2))  # the first two warm up
    return statistics.quantiles([b / a for a, b in zip(old, new, strict=True)], n=4)


if __name__ == "__main__":
    main()
