"""What is asked: shapes, dtypes and rules, for a GPU and for the interpreter, which is slow."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..ops.accelerator import interpreted


@dataclass(frozen=True)
class Shape:
    """A scan."""

    batch: int
    D: int
    L: int
    N: int
    B: str = "token"
    """How B and C are given: a constant, one for each token, or in groups of channels."""
    C: str = "token"
    everything: bool = False
    """With gate, skip, bias, softplus and initial state; without, as Vision Mamba calls it: skip, bias, softplus."""
    reverse: bool = False
    channel_last: bool = False
    """In memory, as after a linear layer."""


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
    """What is asked."""

    rules: tuple[str, ...]
    dtypes: tuple[torch.dtype, ...]
    shapes: tuple[tuple[Shape, ...], ...]
    """Those of the first rule, those of the second, and so on, again and again."""
    model: str
    image_size: int
    images: int
    depth: int | None
    """Layers of the model; its own number by default."""
    speed_rules: tuple[str, ...]
    speed_batch: int
    speed_length: int
    laps: int
    lap_seconds: float
    """Calls are made until so many seconds have passed, and then waited for."""

    @classmethod
    def choose(cls) -> Plan:
        """That of a GPU, or of the interpreter where it is on."""
        from ..ops.scan.triton_discretizations import DISCRETIZATIONS

        rules = tuple(DISCRETIZATIONS)
        dtypes = torch.float32, torch.bfloat16, torch.float16
        if interpreted():
            small = Shape(1, 6, 19, 3, "grouped", "token", everything=True, reverse=True)
            return cls(rules, dtypes, ((small,),), MODEL, 32, 1, 1, rules[:1], 1, 5, 1, 0.0)
        shapes = tuple((VIM_TINY, awkward) for awkward in AWKWARD)
        return cls(rules, dtypes, shapes, MODEL, 224, 2, None, rules, 64, 197, 9, 0.01)

    def shapes_of(self, rule: str, dtype: torch.dtype) -> tuple[Shape, ...]:
        """What is particular to a rule is arithmetic, which knows no shapes: so each has two, and all have all."""
        return self.shapes[(self.rules.index(rule) + self.dtypes.index(dtype)) % len(self.shapes)]
