"""Order of convergence, measured: the error of the scan against the exact solution of h' = −1.3h + u, as Δ shrinks."""

from collections.abc import Callable
from itertools import pairwise
from math import cos, exp, log2, sin

import torch
from torch import Tensor

from tustin import Discretization, selective_scan

RATE = 1.3
FREQUENCY = 2.0  # not a multiple of π: an input that ends at 0 flatters the rules by an order
PIECE = 0.25  # the held input changes value this often
LEVELS = (1.0, -0.5, 0.8, 2.0, -1.0, 0.3, 0.0, 1.5)
END = PIECE * len(LEVELS)


def smooth_input(t: Tensor) -> Tensor:
    return torch.sin(FREQUENCY * t)


def smooth_solution(t: float) -> float:
    """∫ e^{−a(t−s)} sin(ws) ds from 0 to t."""
    w = FREQUENCY
    return (RATE * sin(w * t) - w * cos(w * t) + w * exp(-RATE * t)) / (RATE**2 + w**2)


def held_input(t: Tensor) -> Tensor:
    """The level of the piece that ends at or after t: the step from t−Δ to t sees exactly this value."""
    return torch.tensor(LEVELS, dtype=t.dtype)[(t / PIECE).ceil().long() - 1]


def held_solution(t: float) -> float:
    h, decay = 0.0, exp(-RATE * PIECE)
    for level in LEVELS[: round(t / PIECE)]:
        h = decay * h + (1 - decay) / RATE * level
    return h


def errors(
    discretization: Discretization,
    u: Callable[[Tensor], Tensor],
    solution: Callable[[float], float],
    mix: float | None = None,
) -> list[float]:
    """Error at the end of [0, 2] with 32, 64, 128 and 256 steps."""
    found = []
    for steps in (32, 64, 128, 256):
        delta = END / steps
        t = delta * torch.arange(1, steps + 1, dtype=torch.float64)
        one = torch.ones(1, 1, dtype=torch.float64)
        step = torch.full((1, 1, steps), delta, dtype=torch.float64)
        y = selective_scan(
            u(t)[None, None], step, -RATE * one, one, one, discretization=discretization, backend="reference", mix=mix
        )
        found.append(abs(float(y[0, 0, -1]) - solution(END)))
    return found


def slopes(errors: list[float]) -> list[float]:
    """log2 of how much each halving of the step gains."""
    return [log2(before / after) for before, after in pairwise(errors)]
