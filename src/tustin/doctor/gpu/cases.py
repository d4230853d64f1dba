"""Which kernels there are: every launch of the convolution and of the scan, for each rule and dtype, in ViM-tiny."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...discretize import get_discretization
from ...ops.conv import triton as conv
from ...ops.scan import triton as scan
from ...ops.scan.arguments import Options, Tensors
from ...ops.scan.triton_discretizations import DISCRETIZATIONS
from .compile import Launch, launches

D, N, L, K, DT_RANK = 384, 16, 197, 4, 12  # ViM-tiny at 224²
BATCHES = {"": 64, ", in segments": 1}
"""Samples with which the scan walks the whole sequence at once, and with which it cuts time into segments."""
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True, eq=False)
class Case:
    """A kernel for one rule and one dtype."""

    kernel: str
    discretization: str | None
    """None if the kernel knows no rule."""
    dtype: str
    launch: Launch

    @property
    def name(self) -> tuple[str, str | None, str]:
        """What tells it from all others."""
        return self.kernel, self.discretization, self.dtype

    @property
    def tokens(self) -> int:
        """Tokens of one program; none if it works on segments."""
        if "segment_length" in self.launch.kernel.arg_names:
            return min(L, int(self.launch.argument("segment_length")))
        return int(self.launch.options.get("BLOCK_L", 0))

    @property
    def updates(self) -> int:
        """Updates of a state by one program; the convolution has one state per channel."""
        options = self.launch.options
        return self.tokens * int(options.get("BLOCK_D", 0)) * int(options.get("N", 1))

    @property
    def passes(self) -> tuple[int, ...]:
        """How often a program goes through each of its loops, in the order in which they stand in the code."""
        options = self.launch.options
        if "UNROLL" not in options:
            return ()
        groups = -(-self.tokens // options["UNROLL"])
        if "CHUNK" not in options:
            return (groups,)
        chunks = -(-self.tokens // options["CHUNK"])
        if self.launch.kernel.__name__ == "forward":
            return chunks, groups
        return chunks, groups - chunks, groups  # all chunks; in each all groups of tokens but the last; and all


def cases(
    discretizations: Sequence[str] = tuple(DISCRETIZATIONS), dtypes: Iterable[torch.dtype] = DTYPES
) -> list[Case]:
    """Every kernel once for each rule and dtype that it is compiled for."""
    found: dict[tuple[str, str | None, str], Case] = {}
    for case in _all(discretizations, dtypes):
        found.setdefault(case.name, case)
    return list(found.values())


def named(kernel: str, discretization: str | None, dtype: str) -> Case:
    """The case with this name."""
    some = _of(discretization or next(iter(DISCRETIZATIONS)), dtype)
    return next(case for case in some if case.name == (kernel, discretization, dtype))


@functools.cache
def _of(discretization: str, dtype: str) -> list[Case]:
    return cases((discretization,), (getattr(torch, dtype),))


def _all(discretizations: Sequence[str], dtypes: Iterable[torch.dtype]) -> Iterator[Case]:
    for dtype in dtypes:
        name = str(dtype).removeprefix("torch.")
        for launch in _conv_launches(dtype):
            yield Case(f"conv {launch.kernel.__name__}", None, name, launch)
        for regime, batch in BATCHES.items():
            for discretization in discretizations:
                for launch in scan_launches(discretization, dtype, batch):
                    backwards = ", backwards" if launch.options.get("BACKWARDS") else ""
                    kernel = f"scan {launch.kernel.__name__}{backwards}{regime}"
                    yield Case(kernel, discretization if "STEP" in launch.options else None, name, launch)


def _conv_launches(dtype: torch.dtype, batch: int = BATCHES[""]) -> list[Launch]:
    with torch.device("meta"):
        x, weight, bias = _tokens(batch, D, dtype), torch.empty(D, K), torch.empty(D)
    return launches(
        lambda: (conv.forward(x, weight, bias, True, False), conv.backward(x, x, weight, bias, True, False))
    )


def scan_launches(discretization: str, dtype: torch.dtype, batch: int) -> list[Launch]:
    """Forward and backward as the mixer asks for them: its gate is outside, B and C are parts of one projection.

    λ, where the rule has one, is learned.
    """
    with torch.device("meta"):
        u, delta = _tokens(batch, D, dtype), _tokens(batch, D, dtype)
        _, B, C = _tokens(batch, DT_RANK + 2 * N, dtype).split([DT_RANK, N, N], dim=1)
        A, skip, bias = torch.empty(D, N), torch.empty(D), torch.empty(D)
        mix = _tokens(batch, D, dtype) if get_discretization(discretization).mixes else None
        chunk_states = torch.empty(batch, -(-L // scan.CHUNK), N, D)
    how = (
        Tensors(u, delta, A, B, C, D=skip, delta_bias=bias, mix=mix),
        Options(True, discretization, False),
        chunk_states,
    )
    return launches(lambda: (scan.forward(*how), scan.backward(u, None, *how)))


def _tokens(batch: int, channels: int, dtype: torch.dtype) -> Tensor:
    """(batch, channels, L) as a linear layer leaves it: channels are neighbours in memory."""
    return torch.empty(batch, L, channels, dtype=dtype).transpose(1, 2)
