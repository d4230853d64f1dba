"""How plots look, and how they get into files: the same style, and the same bytes on every machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.style
from matplotlib.figure import Figure

from ..support.files import replacing

_STYLE = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same picture on every machine
    "font.size": 9,
    "mathtext.fontset": "dejavusans",
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.labelpad": 3,
    "axes.linewidth": 0.7,
    "axes.edgecolor": "0.35",
    "axes.labelcolor": "0.15",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": "0.35",
    "ytick.color": "0.35",
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "lines.scale_dashes": False,
    "svg.hashsalt": "tustin",
}
_COLOURS = ("#E69F00", "#0072B2", "#009E73", "#D55E00", "#CC79A7", "#332288", "#56B4E9", "#882255", "#999933")
_DASHES = ((), (6, 1.5), (3, 1.2), (6, 1.5, 1.2, 1.5))  # four with nine colours: 36 pairs before one comes again
_MARKERS = "osD^vPX<>"
_FORMATS: dict[str, dict[str, Any]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
"""Endings, and the metadata without which the same rules would not give the same file."""


def save_figure(path: str | Path, draw: Callable[[], Figure]) -> None:
    """What `draw` draws, in the style of all pictures, into the file at `path`."""
    kind = format_of(path)
    with replacing(path) as file, matplotlib.style.context(_STYLE, after_reset=True):
        draw().savefig(file, format=kind, dpi=160, metadata=_FORMATS[kind])


def format_of(path: str | Path) -> str:
    """The format that the ending of `path` asks for."""
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in _FORMATS:
        raise ValueError(f"cannot draw {str(path)!r}: the file's name must end in .{', .'.join(_FORMATS)}")
    return kind


@dataclass(frozen=True)
class Look:
    """How the curve of one rule is told apart: by colour, dashes and marker."""

    colour: str
    dashes: tuple[float, ...]
    marker: str

    @classmethod
    def number(cls, i: int) -> Look:
        return cls(_COLOURS[i % len(_COLOURS)], _DASHES[i % len(_DASHES)], _MARKERS[i % len(_MARKERS)])

    def line(self, member: int = 0, group: int = 1) -> dict[str, Any]:
        """Options of the line; where `group` curves lie on each other they are braided, each visible in turn."""
        style: Any = (0, self.dashes) if self.dashes else "solid"
        if group > 1:
            style = ((group - member) * 5, (5, 5 * (group - 1)))
        return {"color": self.colour, "linestyle": style, "linewidth": 1.7, "dash_capstyle": "butt", "zorder": 3}

    def points(self, member: int = 0, group: int = 1) -> dict[str, Any]:
        marks = {"marker": self.marker, "markersize": 4.2, "markeredgewidth": 0, "markevery": (member, group)}
        return {**self.line(member, group), **marks, "linewidth": 1.1}
