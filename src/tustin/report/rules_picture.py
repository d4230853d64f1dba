"""One picture of what the rules do, each panel next to the continuous system h' = A·h + u that they approximate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from ..discretize.base import Discretization
from ..discretize.phi import phi
from .plot_style import Look, save_figure

Array = NDArray[np.float64]

_EXACT: dict[str, Any] = {"color": "0.78", "linewidth": 5.0, "solid_capstyle": "butt", "zorder": 1}
_WARNING = "#B34700"
_LABEL_SIZE = 8.5
_KEY_COLUMNS = 10
_CAPTION = """\
One step of h' = Ah + u is hₖ = α·hₖ₋₁ + β·uₖ with z = ΔA. The responses are those of A = −1. \
Rules that coincide share one line in all their colours."""
A = -1.0
DELTA = 1.0
"""The system h' = −h + u and the step of the responses; a step this long makes the differences visible."""


def save(path: str | Path, discretizations: Sequence[Discretization]) -> None:
    """Draw `discretizations` into the file at `path`; its ending is the format."""
    save_figure(path, lambda: draw(discretizations))


# --- what is drawn ----------------------------------------------------------------------------------------------------


def coefficients(rule: Discretization, delta: float, z: Array) -> tuple[Array, list[Array]]:
    """α and every β of the rule, in float64."""
    alpha, betas = rule(torch.tensor(delta, dtype=torch.float64), torch.from_numpy(z))
    return alpha.numpy(), [beta.expand(z.shape).numpy() for beta in betas]


def response(rule: Discretization, u: Array) -> Array:
    """The states h_k = α·h_{k−1} + Σ_j β_j·u_{k−j}, from rest; the first token has no step before it."""
    alpha, betas = coefficients(rule, DELTA, np.array([DELTA * A]))
    driven = np.asarray(sum(beta * np.pad(u, (j, 0))[: u.size] for j, beta in enumerate(betas)))
    zero, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    driven[0] = u[0] * rule(DELTA * one, DELTA * A * one, earlier=(zero,) * (rule.steps - 1))[1][0].item()
    h = [0.0]
    for v in driven:
        h.append(float(alpha[0]) * h[-1] + float(v))
    return np.array(h[1:])


def frequency_response(rule: Discretization, omega: Array) -> NDArray[np.complex128]:
    """H(e^{iωΔ}) = Σ_j β_j e^{−iωjΔ} / (1 − α e^{−iωΔ})."""
    alpha, betas = coefficients(rule, DELTA, np.array([DELTA * A]))
    back = np.exp(-1j * omega * DELTA)
    numerator = sum(beta * back**j for j, beta in enumerate(betas))
    return np.asarray(numerator / (1 - alpha * back), dtype=np.complex128)


def draw(discretizations: Sequence[Discretization]) -> Figure:
    """The figure with all its panels."""
    looks = [Look.number(i) for i in range(len(discretizations))]
    head = 1.15 + 0.24 * _rows_of_key(discretizations)  # inches, with the titles of the first row
    height = 6.9 + head
    figure = Figure(figsize=(12.8, height))
    margins = {"left": 0.047, "right": 0.921, "bottom": 0.52 / height, "top": 1 - head / height}
    grid = figure.add_gridspec(2, 3, **margins, wspace=0.52, hspace=0.34, height_ratios=[1, 1.2])
    panels = _Panels(discretizations, looks)
    panels.alpha(figure.add_subplot(grid[0, 0]))
    panels.beta(figure.add_subplot(grid[0, 1]), "b", delta=1.0)
    panels.beta(figure.add_subplot(grid[0, 2]), "c", delta=0.1)
    panels.ramp(figure.add_subplot(grid[1, 0]))
    panels.sine(figure.add_subplot(grid[1, 1]))
    bode = grid[1, 2].subgridspec(2, 1, hspace=0.1)
    magnitude = figure.add_subplot(bode[0])
    panels.frequency(magnitude, figure.add_subplot(bode[1], sharex=magnitude))
    _head(figure, discretizations, looks)
    return figure


class _Panels:
    """Each rule fills one pair of axes."""

    def __init__(self, discretizations: Sequence[Discretization], looks: Sequence[Look]) -> None:
        self.discretizations = discretizations
        self.looks = looks
        self.z = np.linspace(0, -6, 601)

    def alpha(self, ax: Axes) -> None:
        ax.set(xlim=(0, -6), ylim=(-1.25, 1.4), xlabel="z = ΔA", ylabel="α")
        _title(ax, "a", "Decay of the state: α and exact eᶻ")
        for low, high in ((1, 2), (-2, -1)):
            ax.axhspan(low, high, color=_WARNING, alpha=0.09, linewidth=0)
        ax.text(
            -5.88, -1.125, "|α| > 1: the state grows", color=_WARNING, fontsize=_LABEL_SIZE, va="center", ha="right"
        )
        ax.plot(self.z, np.exp(self.z), **_EXACT)
        self._curves(ax, self.z, [coefficients(rule, DELTA, self.z)[0] for rule in self.discretizations])
        for rule, look in zip(self.discretizations, self.looks, strict=True):
            if (edge := rule.stable[0]) > self.z[-1]:
                alpha = coefficients(rule, DELTA, np.array([edge]))[0].item()
                ax.plot(edge, alpha, "o", color=look.colour, markersize=5, zorder=4)
                _note(ax, (edge, alpha), f"z = {edge:.4g}", look.colour, upward=alpha > 0)

    def beta(self, ax: Axes, letter: str, delta: float) -> None:
        """β/Δ, which for some rules depends on Δ as well as on z; the sum over the samples where there are more."""
        curves = [np.sum(coefficients(rule, delta, self.z)[1], axis=0) / delta for rule in self.discretizations]
        stable = [curve[self.z >= rule.stable[0]] for rule, curve in zip(self.discretizations, curves, strict=True)]
        _fit(ax, np.concatenate([[0.0], *stable]))
        ax.set(xlim=(0, -6), xlabel="z = ΔA", ylabel="β/Δ")
        _title(ax, letter, f"Weight of the input: β/Δ and exact φ₁, Δ = {delta:g}")
        ax.plot(self.z, phi(1, torch.from_numpy(self.z)).numpy(), **_EXACT)
        self._curves(ax, self.z, curves)

    def ramp(self, ax: Axes) -> None:
        _title(ax, "d", f"Response to a ramp, u = t, at Δ = {DELTA:g}")
        self._response(ax, 6, lambda t: t, lambda t: t - 1 + np.exp(-t))

    def sine(self, ax: Axes) -> None:
        w = 0.5
        _title(ax, "e", f"Response to a sine, u = sin(t/2), at Δ = {DELTA:g}")
        self._response(
            ax,
            18,
            lambda t: np.sin(w * t),
            lambda t: (np.sin(w * t) - w * np.cos(w * t) + w * np.exp(-t)) / (1 + w * w),
        )

    def _response(self, ax: Axes, end: float, u: Callable[[Array], Array], exact: Callable[[Array], Array]) -> None:
        """The states step by step under the input u, and the exact solution for A = −1."""
        fine, t = np.linspace(0, end, 400), np.arange(0, end + DELTA / 2, DELTA)
        states = [response(rule, u(t)) for rule in self.discretizations]
        _fit(ax, np.concatenate([exact(fine), *self._stable_only(states)]))
        ax.set(xlim=(0, end), xticks=np.linspace(0, end, 7), xlabel="t", ylabel="h")
        ax.plot(fine, exact(fine), **_EXACT)
        self._curves(ax, t, states, points=True)

    def frequency(self, top: Axes, bottom: Axes) -> None:
        omega = np.geomspace(0.05, np.pi / DELTA, 400)
        exact: NDArray[np.complex128] = np.reciprocal(1j * omega - A)
        answers = [frequency_response(rule, omega) for rule in self.discretizations]
        _title(top, "f", f"Frequency response at Δ = {DELTA:g}")
        top.set(xscale="log", xlim=(omega[0], omega[-1]), ylabel="magnitude")
        top.tick_params(labelbottom=False)
        bottom.set(xlabel="ω, up to the Nyquist frequency π/Δ", ylabel="phase (°)")
        for ax, part in ((top, np.abs), (bottom, _phase)):
            curves = [part(answer) for answer in answers]
            _fit(ax, np.concatenate([part(exact), *self._stable_only(curves)]))
            ax.plot(omega, part(exact), **_EXACT)
            self._curves(ax, omega, curves)
        bottom.set_xticks([0.1, 0.3, 1, 3], ["0.1", "0.3", "1", "3"])
        bottom.minorticks_off()

    def _stable_only(self, curves: Sequence[Array]) -> list[Array]:
        """The curves that set the limits of a response; one that explodes would crush the others."""
        stable = [rule.stable[0] <= DELTA * A <= rule.stable[1] for rule in self.discretizations]
        return [curve for curve, keep in zip(curves, stable, strict=True) if keep]

    def _curves(self, ax: Axes, x: Array, curves: Sequence[Array], points: bool = False) -> None:
        """All rules' curves, those that coincide braided, and their names at the right edge."""
        low, high = ax.get_ylim()
        ends: list[tuple[float, str, str]] = []
        for members in _coincident([curve.clip(low, high) for curve in curves], 0.006 * (high - low)):
            curve = curves[members[0]]
            inside = np.flatnonzero((curve >= low) & (curve <= high))
            for i, rule in enumerate(members):
                options = self.looks[rule].points if points else self.looks[rule].line
                ax.plot(x, curves[rule], **options(i, len(members)), clip_on=inside.size < x.size)
            names = [self.discretizations[rule].name for rule in members]
            colour = self.looks[members[0]].colour if len(members) == 1 else "0.2"
            if low <= curve[-1] <= high:
                ends.append((float((curve[-1] - low) / (high - low)), _lines_of(names), colour))
            elif inside.size:
                upward = bool(curve[inside[-1] + 1] > high)
                at = (float(x[inside[-1]]), high if upward else low)
                _note(ax, at, f"{', '.join(names)} {'↑' if upward else '↓'}", colour, upward)
        _label_ends(ax, ends)


# --- names at the curves ----------------------------------------------------------------------------------------------


def _coincident(curves: Sequence[Array], tolerance: float) -> list[list[int]]:
    """The indices of the curves, those that cannot be told apart by eye together."""
    groups: list[list[int]] = []
    for i, curve in enumerate(curves):
        for group in groups:
            if np.abs(curve - curves[group[0]]).max() <= tolerance:
                group.append(i)
                break
        else:
            groups.append([i])
    return groups


def _lines_of(names: Sequence[str], width: int = 12) -> str:
    """The names with commas, broken into short lines."""
    lines = [""]
    for i, name in enumerate(names):
        word = name + ("," if i + 1 < len(names) else "")
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)


def _label_ends(ax: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    """Each text beside the end of its curve, at the height given in parts of the axes; a thin line leads to it."""
    line = _LABEL_SIZE * 1.2 / 72 / (ax.get_window_extent().height / ax.figure.dpi)
    ends = sorted(ends)
    heights = _spread([y for y, _, _ in ends], [line * (text.count("\n") + 1) for _, text, _ in ends])
    for (wanted, text, colour), y in zip(ends, heights, strict=True):
        lead = Line2D([1.0, 1.025, 1.04], [wanted, y, y], transform=ax.transAxes, color=colour, linewidth=0.6)
        lead.set_clip_on(False)
        ax.add_line(lead)
        ax.text(1.05, y, text, transform=ax.transAxes, color=colour, fontsize=_LABEL_SIZE, va="center", linespacing=1.1)


def _spread(wanted: Sequence[float], sizes: Sequence[float]) -> list[float]:
    """Places in [0, 1] near `wanted` (ascending) at which things of these sizes do not overlap, if they fit at all."""
    places = list(wanted)
    for _ in range(500):  # far more than a dozen labels need to settle
        places = [min(max(place, size / 2), 1 - size / 2) for place, size in zip(places, sizes, strict=True)]
        for i, j in pairwise(range(len(places))):
            overlap = (sizes[i] + sizes[j]) / 2 - (places[j] - places[i])
            if overlap > 0:
                places[i] -= overlap / 2
                places[j] += overlap / 2
    return places


def _note(ax: Axes, at: tuple[float, float], text: str, colour: str, upward: bool) -> None:
    """A text to the right of a point: below it if the curve goes up from there, else above."""
    ax.annotate(
        text.replace("-", "−"),
        at,
        (6, -3 if upward else 3),
        textcoords="offset points",
        color=colour,
        fontsize=_LABEL_SIZE,
        va="top" if upward else "bottom",
    )


# --- frame ------------------------------------------------------------------------------------------------------------


def _phase(h: NDArray[np.complex128]) -> Array:
    return np.degrees(np.unwrap(np.angle(h)))


def _fit(ax: Axes, values: Array) -> None:
    """Limits that leave some air around the values."""
    margin = 0.06 * float(np.ptp(values))
    ax.set_ylim(float(values.min()) - margin, float(values.max()) + margin)


def _title(ax: Axes, letter: str, text: str) -> None:
    ax.set_title(f"$\\bf{{{letter}}}$   {text}")


def _rows_of_key(discretizations: Sequence[Discretization]) -> int:
    return -(-(len(discretizations) + 1) // _KEY_COLUMNS)


def _head(figure: Figure, discretizations: Sequence[Discretization], looks: Sequence[Look]) -> None:
    """Title, what is shown, and the key."""
    height = figure.get_figheight()
    figure.text(0.012, 1 - 0.14 / height, "What the discretization rules do", fontsize=14, weight="bold", va="top")
    figure.text(0.012, 1 - 0.44 / height, _CAPTION, fontsize=9.5, color="0.3", va="top")
    exact = Line2D([], [], **_EXACT, label="continuous system")
    rules = [
        Line2D([], [], **look.points(), label=rule.name) for rule, look in zip(discretizations, looks, strict=True)
    ]
    figure.legend(
        handles=[exact, *rules],
        loc="upper left",
        bbox_to_anchor=(0.008, 1 - 0.68 / height),
        ncols=_KEY_COLUMNS,
        frameon=False,
        handlelength=3.2,
        columnspacing=1.6,
        fontsize=9.5,
        borderaxespad=0.2,
    )
