"""The mixer of Vision Mamba: a selective state-space model that reads the tokens in both directions.

Names and shapes of the parameters are those of the official code (`bimamba_type="v2"`), so its weights load.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..discretize import get_discretization
from ..ops.conv import causal_conv
from ..ops.rowwise import beside, gated_mean
from ..ops.scan import selective_scan
from ..support.names import unknown

__all__ = ["DT_INITS", "Mixer"]

DT_INITS = ("vim", "mamba")
"""How the backward direction's step may start: as the official code has it, or as the forward direction's."""


class Mixer(nn.Module):
    """(batch, L, d) → (batch, L, d).

        x, gate = in_proj(input)                                     shared by both directions
        u = silu(causal_conv(x));  Δ, B, C = projections of u        of each direction
        y = selective_scan(u, Δ, A, B, C, D)                         from the first token on, and from the last
        out_proj((y_forward + y_backward) / 2 · silu(gate))

    Everything is channel-last and no tensor is flipped: convolution and scan take views and walk in either direction.
    """

    def __init__(
        self,
        d: int,
        d_state: int = 16,
        discretization: str = "mamba",
        dt_init_backward: str = "vim",
        backend: str = "auto",
    ) -> None:
        super().__init__()
        if dt_init_backward not in DT_INITS:
            raise ValueError(unknown("dt_init_backward", dt_init_backward, DT_INITS))
        self.discretization = get_discretization(discretization).name
        self.backend = backend
        self.d_state, self.dt_rank = d_state, math.ceil(d / 16)
        d_inner = 2 * d
        sizes = d_inner, d_state, self.dt_rank
        self.in_proj = nn.Linear(d, 2 * d_inner, bias=False)
        self.conv1d, self.x_proj, self.dt_proj, self.A_log, self.D = _direction(*sizes)
        self.conv1d_b, self.x_proj_b, self.dt_proj_b, self.A_b_log, self.D_b = _direction(*sizes)
        self.out_proj = nn.Linear(d_inner, d, bias=False)
        if dt_init_backward == "vim":
            # The official code zeroes every bias after the layers have set theirs, and spares only the forward dt's.
            nn.init.zeros_(self.dt_proj_b.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        # Two products instead of one cut in half: their gradients need no joining, and one can wait until it is needed.
        to_x, to_gate = self.in_proj.weight.chunk(2)
        x = F.linear(tokens, to_x).transpose(1, 2)  # (batch, d_inner, L)
        forward = self._scan(self.scan_arguments(x, reverse=False)).transpose(1, 2)  # (batch, L, d_inner)
        arguments = self.scan_arguments(x, reverse=True)
        del x  # a large image needs the room
        backward = self._scan(arguments).transpose(1, 2)
        del arguments
        y = gated_mean(forward, backward, F.linear(tokens, to_gate), backend=beside(self.backend))
        del forward, backward
        return F.linear(y, self.out_proj.weight)

    def _scan(self, arguments: dict[str, Any]) -> Tensor:
        y = selective_scan(**arguments, discretization=self.discretization, backend=self.backend)
        assert isinstance(y, Tensor)
        return y

    def scan_arguments(self, x: Tensor, reverse: bool) -> dict[str, Any]:
        """What a direction hands to `selective_scan`, given the first half of in_proj's output (batch, d_inner, L)."""
        if reverse:
            conv1d, x_proj, dt_proj, A_log, D = self.conv1d_b, self.x_proj_b, self.dt_proj_b, self.A_b_log, self.D_b
        else:
            conv1d, x_proj, dt_proj, A_log, D = self.conv1d, self.x_proj, self.dt_proj, self.A_log, self.D
        u = causal_conv(x, conv1d.weight.squeeze(1), conv1d.bias, reverse=reverse, backend=self.backend)
        dt, B, C = x_proj(u.transpose(1, 2)).split([self.dt_rank, self.d_state, self.d_state], dim=-1)
        return {
            "u": u,
            "delta": F.linear(dt, dt_proj.weight).transpose(1, 2),  # its bias is added inside the scan, in float32
            "A": -torch.exp(A_log.to(torch.promote_types(A_log.dtype, torch.float32))),
            "B": B.transpose(1, 2),
            "C": C.transpose(1, 2),
            "D": D,
            "delta_bias": dt_proj.bias,
            "delta_softplus": True,
            "reverse": reverse,
        }


def _direction(
    d_inner: int, d_state: int, dt_rank: int
) -> tuple[nn.Conv1d, nn.Linear, nn.Linear, nn.Parameter, nn.Parameter]:
    """The parts of one direction, initialised as in Mamba: conv1d, x_proj, dt_proj, A_log and D."""
    dt_proj = nn.Linear(dt_rank, d_inner)
    with torch.no_grad():
        dt_proj.bias.copy_(_inverse_softplus(torch.empty(d_inner).uniform_(math.log(1e-3), math.log(0.1)).exp()))
    return (
        nn.Conv1d(d_inner, d_inner, kernel_size=4, groups=d_inner),
        nn.Linear(d_inner, dt_rank + 2 * d_state, bias=False),
        dt_proj,
        nn.Parameter(torch.arange(1.0, d_state + 1).log().repeat(d_inner, 1)),
        nn.Parameter(torch.ones(d_inner)),
    )


def _inverse_softplus(y: Tensor) -> Tensor:
    return y + torch.log(-torch.expm1(-y))
