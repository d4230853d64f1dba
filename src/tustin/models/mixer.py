"""The mixer of Vision Mamba: a selective state-space model that reads the tokens in both directions.

Names and shapes of the parameters are those of the official code (`bimamba_type="v2"`), so its weights load.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..discretize import get_discretization
from ..ops.conv import causal_conv
from ..ops.products import apply_linear, linear
from ..ops.rowwise import beside, gated_mean
from ..ops.scan import selective_scan
from ..support.names import unknown

__all__ = ["DT_INITS", "Mixer"]

DT_INITS = ("vim", "mamba", "long")
"""How a direction's step may start: at 0.69, from 0.001 to 0.1, or ten times as long."""


class Mixer(nn.Module):
    """(batch, L, d) → (batch, L, d).

        x, gate = in_proj(input)                                     shared by both directions
        u = silu(causal_conv(x));  Δ, B, C = projections of u        of each direction
        y = selective_scan(u, Δ, A, B, C, D)                         from the first token on, and from the last
        out_proj((y_forward + y_backward) / 2 · silu(gate))

    A rule that has a λ (`exptrap`) learns it: λ = sigmoid(low-rank projection of u), ½ everywhere at the start.
    With `state=False`, a control for experiments, y = D·u: then only the convolution mixes tokens.
    Everything is channel-last and no tensor is flipped: convolution and scan read views in both directions.
    """

    def __init__(
        self,
        d: int,
        d_state: int = 16,
        discretization: str = "mamba",
        dt_init_backward: str = "vim",
        backend: str = "auto",
        *,
        dt_init_forward: str = "mamba",
        d_conv: int = 4,
        conv_dilation: int = 1,
        delta_scale: float = 1.0,
        state: bool = True,
    ) -> None:
        super().__init__()
        for name, start in (("dt_init_backward", dt_init_backward), ("dt_init_forward", dt_init_forward)):
            if start not in DT_INITS:
                raise ValueError(unknown(name, start, DT_INITS))
        rule = get_discretization(discretization)
        self.discretization = rule.name
        self.backend = backend
        self.d_state, self.dt_rank = d_state, math.ceil(d / 16)
        d_inner = 2 * d
        self.conv_dilation, self.delta_scale, self.state = conv_dilation, delta_scale, state
        sizes = d_inner, d_state, self.dt_rank, d_conv
        self.in_proj = nn.Linear(d, 2 * d_inner, bias=False)
        self.conv1d, self.x_proj, self.dt_proj, self.A_log, self.D = _direction(*sizes)
        self.conv1d_b, self.x_proj_b, self.dt_proj_b, self.A_b_log, self.D_b = _direction(*sizes)
        self.out_proj = nn.Linear(d_inner, d, bias=False)
        learns_mix = rule.mixes and state
        self.mix_proj = _mix_projection(d_inner, self.dt_rank) if learns_mix else None
        self.mix_proj_b = _mix_projection(d_inner, self.dt_rank) if learns_mix else None
        # The official code zeroes every bias after the layers have set theirs, and spares only the forward dt's.
        _start_steps(self.dt_proj.bias, dt_init_forward)
        _start_steps(self.dt_proj_b.bias, dt_init_backward)
        if not state:  # what has no effect has no gradient either, which distributed training must know
            for unused in (self.x_proj, self.dt_proj, self.x_proj_b, self.dt_proj_b):
                unused.requires_grad_(False)
            self.A_log.requires_grad_(False)
            self.A_b_log.requires_grad_(False)

    def forward(self, tokens: Tensor) -> Tensor:
        # Two products instead of one cut in half: their gradients need no joining, and one can wait until it is needed.
        to_x, to_gate = _halves(self.in_proj)
        x = to_x(tokens).transpose(1, 2)  # (batch, d_inner, L)
        forward = self._scan(self.scan_arguments(x, reverse=False)).transpose(1, 2)  # (batch, L, d_inner)
        arguments = self.scan_arguments(x, reverse=True)
        del x  # a large image needs the room
        backward = self._scan(arguments).transpose(1, 2)
        del arguments
        y = gated_mean(forward, backward, to_gate(tokens), backend=beside(self.backend))
        del forward, backward
        return apply_linear(self.out_proj, y)

    def _scan(self, arguments: dict[str, Any]) -> Tensor:
        if not self.state:
            skipped: Tensor = arguments["D"][:, None] * arguments["u"]
            return skipped
        y = selective_scan(**arguments, discretization=self.discretization, backend=self.backend)
        assert isinstance(y, Tensor)
        return y

    def scan_arguments(self, x: Tensor, reverse: bool) -> dict[str, Any]:
        """What one direction gives to `selective_scan`, from the first half of in_proj's output (batch, d_inner, L)."""
        if reverse:
            conv1d, x_proj, dt_proj, A_log, D = self.conv1d_b, self.x_proj_b, self.dt_proj_b, self.A_b_log, self.D_b
            mix_proj = self.mix_proj_b
        else:
            conv1d, x_proj, dt_proj, A_log, D = self.conv1d, self.x_proj, self.dt_proj, self.A_log, self.D
            mix_proj = self.mix_proj
        taps = _dilated(conv1d.weight.squeeze(1), self.conv_dilation)
        u = causal_conv(x, taps, conv1d.bias, reverse=reverse, backend=self.backend)
        if not self.state:
            return {"u": u, "D": D}
        dt, B, C = apply_linear(x_proj, u.transpose(1, 2)).split([self.dt_rank, self.d_state, self.d_state], dim=-1)
        plain = type(dt_proj) is nn.Linear  # of which the bias is added inside the scan, in float32
        delta = (linear(dt, dt_proj.weight) if plain else dt_proj(dt)).transpose(1, 2)
        delta_bias: Tensor | None = dt_proj.bias if plain else None
        if self.delta_scale != 1:
            steps = _wide(delta) if delta_bias is None else _wide(delta) + _wide(delta_bias)[:, None]
            delta, delta_bias = self.delta_scale * F.softplus(steps), None
        return {
            "u": u,
            "delta": delta,
            "A": -torch.exp(_wide(A_log)),
            "B": B.transpose(1, 2),
            "C": C.transpose(1, 2),
            "D": D,
            "delta_bias": delta_bias,
            "delta_softplus": self.delta_scale == 1,
            "reverse": reverse,
            "mix": None if mix_proj is None else _wide(mix_proj(u.transpose(1, 2))).sigmoid().transpose(1, 2),
        }


def _direction(
    d_inner: int, d_state: int, dt_rank: int, d_conv: int
) -> tuple[nn.Conv1d, nn.Linear, nn.Linear, nn.Parameter, nn.Parameter]:
    """The parts of one direction, initialised as in Mamba: conv1d, x_proj, dt_proj, A_log and D."""
    dt_proj = nn.Linear(dt_rank, d_inner)
    with torch.no_grad():
        dt_proj.bias.copy_(_inverse_softplus(torch.empty(d_inner).uniform_(math.log(1e-3), math.log(0.1)).exp()))
    return (
        nn.Conv1d(d_inner, d_inner, kernel_size=d_conv, groups=d_inner),
        nn.Linear(d_inner, dt_rank + 2 * d_state, bias=False),
        dt_proj,
        nn.Parameter(torch.arange(1.0, d_state + 1).log().repeat(d_inner, 1)),
        nn.Parameter(torch.ones(d_inner)),
    )


def _mix_projection(d_inner: int, rank: int) -> nn.Sequential:
    """u → what λ is the sigmoid of. The last layer starts at zero, so that λ starts at ½.

    Its random numbers are drawn aside: all other weights are those of a model with another rule and the same seed.
    """
    with torch.random.fork_rng(devices=[]):
        down, up = nn.Linear(d_inner, rank, bias=False), nn.Linear(rank, d_inner)
    nn.init.zeros_(up.weight)
    nn.init.zeros_(up.bias)
    return nn.Sequential(down, up)


def _halves(layer: nn.Module) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """The two halves of what a layer puts out, each computed when it is called for.

    A layer that somebody has put in the place of ours, quantized or with adapters, has no weight to cut: it is called,
    and the tokens being the same, once.
    """
    if type(layer) is nn.Linear:
        first, second = layer.weight.chunk(2)
        return lambda tokens: linear(tokens, first), lambda tokens: linear(tokens, second)
    outputs: list[Tensor] = []

    def half(number: int) -> Callable[[Tensor], Tensor]:
        def compute(tokens: Tensor) -> Tensor:
            if not outputs:
                outputs.extend(layer(tokens).chunk(2, dim=-1))
            return outputs[number]

        return compute

    return half(0), half(1)


@torch.no_grad()
def _start_steps(bias: Tensor, start: str) -> None:
    """Change the steps that a bias stands for, from Mamba's to another start."""
    if start == "vim":
        bias.zero_()
    elif start == "long":
        bias.copy_(_inverse_softplus(10 * F.softplus(bias)))


def _dilated(taps: Tensor, dilation: int) -> Tensor:
    """(D, K) → (D, (K − 1)·dilation + 1): zeros between the taps, the last of which still meets the current token."""
    if dilation == 1:
        return taps
    spread = F.pad(taps[..., None], (0, dilation - 1)).flatten(1)  # each tap, then its zeros
    return spread[:, : 1 - dilation]


def _wide(tensor: Tensor) -> Tensor:
    """In at least float32."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def _inverse_softplus(y: Tensor) -> Tensor:
    return y + torch.log(-torch.expm1(-y))
