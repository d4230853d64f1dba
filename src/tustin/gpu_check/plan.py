"""What is checked: shapes, dtypes and rules, for a GPU and for the interpreter, which is slow."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..ops.accelerator import interpreted


@dataclass(frozen=True)
class Shape:
    """The shape and the options of a scan."""

    batch: int
    D: int
    L: int
    N: int
    B: str = "token"
    """The form of B and C: "constant", per "token", or "grouped" by channels."""
    C: str = "token"
    everything: bool = False
    """With gate, skip, bias, softplus and initial state. Otherwise skip, bias and softplus only, as in Vision Mamba."""
    reverse: bool = False
    channel_last: bool = False
    """Memory layout: neighbouring channels are neighbours in memory, as after a linear layer."""


MODEL = "vim_tiny_patch16_224"
VIM_TINY = Shape(2, 384, 197, 16, channel_last=True)
AWKWARD = (
    Shape(1, 1, 1, 1, everything=True),
    Shape(3, 33, 129, 7, "grouped", "token", everything=True, reverse=True),
    Shape(2, 12, 63, 64, "constant", "grouped", everything=True, channel_last=True),
    Shape(1, 40, 2051, 16, "token", "constant", everything=True, reverse=True),  # few rows: time is cut into segments
    Shape(0, 4, 5, 2, everything=True),
)


@dataclass(frozen=True)
class Plan:
    """The checks to run: rules, dtypes and shapes of the scans, the model, and how speed is measured."""

    rules: tuple[str, ...]
    dtypes: tuple[torch.dtype, ...]
    shapes: tuple[tuple[Shape, ...], ...]
    """The sets of shapes, which rules and dtypes take in turn; see `shapes_of`."""
    model: str
    image_size: int
    images: int
    depth: int | None
    """Number of blocks of the model; None: as many as it has."""
    speed_rules: tuple[str, ...]
    speed_batch: int
    speed_length: int
    laps: int
    lap_seconds: float
    """Seconds of a lap: calls are queued until they have passed."""

    @classmethod
    def choose(cls) -> Plan:
        """The plan for a GPU, or for Triton's interpreter if TRITON_INTERPRET=1 is set."""
        from ..ops.scan.triton_discretizations import DISCRETIZATIONS

        rules = tuple(DISCRETIZATIONS)
        dtypes = torch.float32, torch.bfloat16, torch.float16
        if interpreted():
            small = Shape(1, 6, 19, 3, "grouped", "token", everything=True, reverse=True)
            return cls(rules, dtypes, ((small,),), MODEL, 32, 1, 1, rules[:1], 1, 5, 1, 0.0)
        shapes = tuple((VIM_TINY, awkward) for awkward in AWKWARD)
        return cls(rules, dtypes, shapes, MODEL, 224, 2, None, rules, 64, 197, 9, 0.01)

    def shapes_of(self, rule: str, dtype: torch.dtype) -> tuple[Shape, ...]:
        """The shapes at which this rule is checked in this dtype. Over all rules and dtypes, every shape occurs.

        Not every rule needs every shape, because the arithmetic of a rule does not depend on the shape.
        """
        return self.shapes[(self.rules.index(rule) + self.dtypes.index(dtype)) % len(self.shapes)]
