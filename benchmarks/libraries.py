"""Compares two builds of the native library: the time of each rule with NEW, divided by its time with OLD.

    python benchmarks/libraries.py OLD.so NEW.so --levels v3

Both run alternately in one process, on one thread and on the same tensors, so that other programs slow both equally.
Only the time inside the library counts. A ratio is the median over all turns, followed by its quartiles.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections import defaultdict
from unittest import mock

import torch

from tustin import DISCRETIZATIONS, selective_scan
from tustin.ops import native


class Stopwatch:
    """Stands in for `native.call`: runs one of two libraries and adds up the time that each of its functions takes."""

    def __init__(self, libraries: list[ctypes.CDLL]) -> None:
        self.libraries, self.which = libraries, 0
        self.seconds: dict[str, list[list[float]]] = defaultdict(lambda: [[], []])

    def __call__(self, name: str, arguments: bytes, operator: str) -> None:
        function = getattr(self.libraries[self.which], name)
        begin = time.perf_counter()
        function(arguments)
        self.seconds[name][self.which].append(time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", nargs=2, metavar="LIBRARY")
    parser.add_argument("--levels", default="v3", help="CPU level of both, or with a comma of each (default: v3)")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--shape", type=int, nargs=4, default=[4, 384, 197, 16], metavar=("BATCH", "D", "L", "N"))
    parser.add_argument("--discretizations", default=",".join(DISCRETIZATIONS), help="with commas between them")
    args = parser.parse_args()
    torch.set_num_threads(1)
    libraries = [ctypes.CDLL(path) for path in args.libraries]
    levels = args.levels.split(",")
    for library, level in zip(libraries, levels * (3 - len(levels)), strict=True):
        if library.tustin_set_cpu_level(level.encode()):
            raise SystemExit(f"level {level} is not in {library._name}, or not on this CPU")
    print(f"{'rule':8} {'forward':>22} {'backward':>22}")
    for rule in args.discretizations.split(","):
        ratios = measured(libraries, rule, args.shape, args.rounds)
        print(
            f"{rule:8} " + " ".join(f"{middle:8.3f} ({low:.3f}-{high:.3f})" for low, middle, high in ratios), flush=True
        )


def measured(libraries: list[ctypes.CDLL], rule: str, shape: list[int], turns: int) -> list[list[float]]:
    """Quartiles of the ratio of times, forward and backward."""
    batch, D, L, N = shape
    random = torch.Generator().manual_seed(0)
    u, delta = (torch.randn(batch, L, D, generator=random).mT.requires_grad_() for _ in range(2))
    B, C = (torch.randn(batch, L, N, generator=random).mT.requires_grad_() for _ in range(2))
    A = (-torch.arange(1.0, N + 1).repeat(D, 1)).requires_grad_()
    bias, d_out = torch.full((D,), -3.0), torch.randn(batch, D, L, generator=random)
    watch = Stopwatch(libraries)
    with mock.patch.object(native, "call", watch):
        for turn in range(turns + 2):
            for watch.which in (0, 1) if turn % 2 else (1, 0):
                out = selective_scan(u, delta, A, B, C, delta_bias=bias, delta_softplus=True, discretization=rule)
                torch.autograd.grad(out, [u, delta, A, B, C], d_out)
    names = ("tustin_scan_forward", "tustin_scan_backward")
    both = [list(zip(*watch.seconds[name], strict=True))[2:] for name in names]  # the first two turns warm up
    return [statistics.quantiles([new / old for old, new in pairs], n=4) for pairs in both]


if __name__ == "__main__":
    main()
