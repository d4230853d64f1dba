"""Where the discretization matters: estimates the poles of a continuous system from samples of its input and output.

    h' = −p·h + u        y = Σ_n c_n·h_n        with three poles −p_n, driven by a sum of sines

The input and the output are known only at some times. Gradient descent through `selective_scan` searches for the poles
with which the scan gives the same output at these times. So every error of the rule becomes an error of the poles, and
the error of the poles shows the order of the rule as the steps get shorter:

    python examples/identify.py                           # a table, and identify.png
    python examples/identify.py --rules zoh,true_foh --picture two.svg
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log2
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

from tustin import DISCRETIZATIONS, selective_scan
from tustin.discretize import FUSED, get_discretization
from tustin.report.plot_style import Look, save_figure

torch.set_default_dtype(torch.float64)
POLES = torch.tensor([0.6, 1.5, 4.0])
GAINS = torch.tensor([1.0, 2.0, 4.0])
GUESS = torch.tensor([1.4, 0.7, 1.4]) * POLES
FREQUENCIES = torch.tensor([0.9, 2.0, 3.3])
END = 4.0
STEPS, FEW_STEPS = (32, 64, 128, 256, 512), (16, 32, 64)
"""How many there are until END; few for a rule that only the slow reference runs."""
EXACT = 1e-6
"""What is left of an error of zero after so many iterations."""


@dataclass(frozen=True)
class Setting:
    """What the samples are."""

    title: str
    seeds: tuple[int, ...] = (1, 2, 3)
    """Of each set of random times; 0 means even ones."""
    held: bool = False
    """The input is constant over each step, and not smooth."""
    noise: float = 0.0
    """Of the output, relative to its size."""


SETTINGS = {
    "even": Setting("smooth input, sampled evenly", seeds=(0,)),
    "random": Setting("smooth input, sampled at random times"),
    "held": Setting("input constant over each step, random times", held=True),
    "noise": Setting("smooth input, random times, 1 % noise", noise=0.01),
}


def steps_between(steps: int, seed: int) -> Tensor:
    """The time between samples; at random the longest is up to three times the shortest."""
    random = torch.Generator().manual_seed(seed)
    delta = 0.5 + torch.rand(steps, generator=random) if seed else torch.ones(steps)
    return delta * (END / delta.sum())


def smooth_output(t: Tensor) -> Tensor:
    """y at the times t, exactly: ∫ e^{−p(t−s)} sin(ωs) ds for each pole and frequency."""
    p, w, t = POLES[:, None], FREQUENCIES, t[..., None, None]
    h = (p * torch.sin(w * t) - w * torch.cos(w * t) + w * torch.exp(-p * t)) / (p**2 + w**2)
    return h.sum(-1) @ GAINS


def held_output(u: Tensor, delta: Tensor) -> Tensor:
    """y after each step, exactly, of an input that is u over it."""
    h, outputs = torch.zeros(len(u), len(POLES)), []
    for k in range(u.shape[1]):
        decay = torch.exp(-POLES * delta[:, k, None])
        h = decay * h + (1 - decay) / POLES * u[:, k, None]
        outputs.append(h @ GAINS)
    return torch.stack(outputs, 1)


def recover(rule: str, setting: Setting, steps: int) -> Tensor:
    """The poles (sets of times, 3) that gradient descent finds, with all sets at once, each a channel of the scan."""
    delta = torch.stack([steps_between(steps, seed) for seed in setting.seeds])
    t = delta.cumsum(1)
    u = torch.sin(t[..., None] * FREQUENCIES).sum(-1)
    y = held_output(u, delta) if setting.held else smooth_output(t)
    y = y + setting.noise * y.std() * torch.randn(y.shape, generator=torch.Generator().manual_seed(steps))

    theta = GUESS.log().repeat(len(delta), 1).requires_grad_()  # the poles are −e^θ
    B = torch.ones_like(theta)
    search = torch.optim.LBFGS(
        [theta], max_iter=50, tolerance_grad=1e-10, tolerance_change=1e-15, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        search.zero_grad()
        backend = "auto" if get_discretization(rule) in FUSED else "reference"
        scan = selective_scan(u[None], delta[None], -theta.exp(), B, GAINS * B, discretization=rule, backend=backend)
        error = (scan[0] - y).square().mean(1).sum()
        error.backward()
        return error

    search.step(loss)
    return theta.detach().exp()


def errors(rule: str, setting: Setting, counts: Sequence[int] = ()) -> tuple[list[float], list[float]]:
    """For each number of steps: Δ·|p| of the fastest pole, and the root mean square of all poles' relative errors."""
    counts = counts or (STEPS if get_discretization(rule) in FUSED else FEW_STEPS)
    found = [recover(rule, setting, steps) for steps in counts]
    return (
        [END / steps * float(POLES.max()) for steps in counts],
        [float((poles / POLES - 1).square().mean().sqrt()) for poles in found],
    )


def slope(step: Sequence[float], error: Sequence[float]) -> float:
    """The power of the step with which the error falls, from the last three that are not zero; infinite if all are."""
    points = [point for point in zip(step, error, strict=True) if point[1] > EXACT][-3:]
    if len(points) < 2:
        return inf
    return log2(points[0][1] / points[-1][1]) / log2(points[0][0] / points[-1][0])


def draw(found: dict[str, dict[str, tuple[list[float], list[float]]]]) -> Figure:
    """A panel for each setting."""
    figure = Figure(figsize=(10.4, 9), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True, sharey="row").flat
    for panel, (name, curves) in zip(panels, found.items(), strict=False):
        for order in (1, 2, 3):
            panel.plot([0.04, 1.0], [0.2 * 0.04**order, 0.2], color="0.88", linewidth=4, zorder=1)
            panel.annotate(f"Δ{' ²³'[order - 1]}", (0.037, 0.2 * 0.04**order), color="0.5", ha="right", va="center")
        for rule, (step, error) in curves.items():
            panel.plot(step, error, label=rule, **Look.number(list(DISCRETIZATIONS).index(rule)).points())
        panel.set(xscale="log", yscale="log", ylim=(1e-8, 3) if name in ("held", "noise") else (1e-5, 3))
        panel.set_title(SETTINGS[name].title)
        panel.grid(color="0.93", linewidth=0.6)
    for panel in figure.axes[2:]:
        panel.set_xlabel("mean step Δ x fastest pole")
    figure.supylabel("relative error of the poles found", fontsize=9)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=7, frameon=False)
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rules", default=",".join(DISCRETIZATIONS), help="names with commas; all by default")
    parser.add_argument("--picture", type=Path, default=Path("identify.png"), help="where to draw it")
    given = parser.parse_args(arguments)
    rules = [get_discretization(name).name for name in given.rules.split(",")]

    found: dict[str, dict[str, tuple[list[float], list[float]]]] = {name: {} for name in SETTINGS}
    print(f"{'rule':10}" + "".join(f"{name:>18}" for name in SETTINGS))
    for rule in rules:
        row = f"{rule:10}"
        for name, setting in SETTINGS.items():
            if get_discretization(rule) not in FUSED and name not in ("even", "random"):
                row += f"{'—':>18}"  # on the reference it would take a minute
                continue
            step, error = found[name][rule] = errors(rule, setting)
            row += f"{error[-1]:11.1e} {round(slope(step, error), 2) + 0.0:6.2f}"
        print(row, flush=True)
    print("Each: the error of the poles with the shortest steps, and the power of the step with which it falls.")
    save_figure(given.picture, lambda: draw(found))
    print(f"drawn: {given.picture}")


if __name__ == "__main__":
    main()
