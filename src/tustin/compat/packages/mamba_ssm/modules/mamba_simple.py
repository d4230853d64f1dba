"""Mamba's layer, with Vision Mamba's two directions. Parameters have the names, shapes and first values of upstream."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tustin.compat.rule import rule
from tustin.ops.products import apply_linear, linear
from tustin.ops.rowwise import gated_mean
from tustin.ops.scan import selective_scan
from tustin.ops.update import causal_conv_update
from tustin.support.names import unknown

from ..ops.selective_scan_interface import bimamba_inner_fn, scan_arguments
from ..ops.triton.selective_state_update import selective_state_update
from ..utils.generation import InferenceParams
from .block import Block

__all__ = ["Block", "Mamba"]

_BIMAMBA_TYPES = ("none", "v1", "v2")


class Mamba(nn.Module):
    """(batch, L, d) → (batch, L, d).

    Of the arguments that are not Mamba's own, `bimamba_type`, `if_divide_out` and `init_layer_scale` are Vision
    Mamba's, `if_devide_out` is what it called that one at first, and `bimamba=True` is VideoMamba's word for "v2".
    `use_fast_path` has no effect: every path is fused, and reads both directions.
    """

    def __init__(
        self,
        d_model: int,
        d_state: int = 16,
        d_conv: int = 4,
        expand: float = 2,
        dt_rank: int | str = "auto",
        dt_min: float = 0.001,
        dt_max: float = 0.1,
        dt_init: str = "random",
        dt_scale: float = 1.0,
        dt_init_floor: float = 1e-4,
        conv_bias: bool = True,
        bias: bool = False,
        use_fast_path: bool = True,
        layer_idx: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        bimamba_type: str | None = "none",
        if_divide_out: bool = False,
        init_layer_scale: float | None = None,
        *,
        if_devide_out: bool = False,
        bimamba: bool = False,
    ) -> None:
        super().__init__()
        bimamba_type = "v2" if bimamba else bimamba_type or "none"
        if bimamba_type not in _BIMAMBA_TYPES:
            raise ValueError(unknown("bimamba_type", bimamba_type, _BIMAMBA_TYPES))
        if dt_init not in ("constant", "random"):
            raise ValueError(unknown("dt_init", dt_init, ("constant", "random")))
        self.d_model, self.d_state, self.d_conv, self.expand = d_model, d_state, d_conv, expand
        self.d_inner = int(expand * d_model)
        self.dt_rank = math.ceil(d_model / 16) if dt_rank == "auto" else int(dt_rank)
        self.use_fast_path, self.layer_idx = use_fast_path, layer_idx
        self.bimamba_type, self.if_divide_out = bimamba_type, if_divide_out or if_devide_out
        self.activation, self.act = "silu", nn.SiLU()
        self.init_layer_scale = init_layer_scale
        if init_layer_scale is not None:
            self.gamma = nn.Parameter(init_layer_scale * torch.ones(d_model, device=device))

        # In the order of upstream, so that the same seed gives the same values.
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        sizes = self.d_inner, d_state, self.dt_rank, d_conv
        self.in_proj = nn.Linear(d_model, 2 * self.d_inner, bias=bias, **made)
        self.conv1d, self.x_proj, self.dt_proj = _projections(*sizes, conv_bias, **made)
        spread = self.dt_rank**-0.5 * dt_scale
        if dt_init == "constant":
            nn.init.constant_(self.dt_proj.weight, spread)
        else:
            nn.init.uniform_(self.dt_proj.weight, -spread, spread)
        low, high = math.log(dt_min), math.log(dt_max)
        dt = torch.exp(torch.rand(self.d_inner, **made) * (high - low) + low).clamp(min=dt_init_floor)
        with torch.no_grad():
            self.dt_proj.bias.copy_(dt + torch.log(-torch.expm1(-dt)))  # softplus of it is dt
        self.dt_proj.bias._no_reinit = True  # type: ignore[attr-defined]
        self.A_log, self.D = _recurrence(self.d_inner, d_state, device)
        if bimamba_type == "v1":
            self.A_b_log, _ = _recurrence(self.d_inner, d_state, device)
        elif bimamba_type == "v2":
            self.A_b_log, self.D_b = _recurrence(self.d_inner, d_state, device)
            self.conv1d_b, self.x_proj_b, self.dt_proj_b = _projections(*sizes, conv_bias, **made)
        self.out_proj = nn.Linear(self.d_inner, d_model, bias=bias, **made)

    def forward(self, hidden_states: Tensor, inference_params: InferenceParams | None = None) -> Tensor:
        """With `inference_params` the states are kept there, and after the first call every call is one token."""
        if hidden_states.ndim != 3 or hidden_states.shape[2] != self.d_model:
            expected = f"(batch, L, {self.d_model})"
            raise ValueError(f"Mamba: hidden_states has shape {tuple(hidden_states.shape)}, expected {expected}")
        if inference_params is not None:
            states = self._get_states_from_cache(inference_params, hidden_states.shape[0])
            if inference_params.seqlen_offset > 0:
                return self.step(hidden_states, *states)[0]
            return self._prefill(hidden_states, *states)
        if self.bimamba_type == "v1":
            return self._scaled(self._shared_directions(hidden_states))
        x, z = self._halves(hidden_states)
        if self.bimamba_type == "v2":
            y = self._two_directions(x, z)
        else:
            y = _output(self._scan_arguments(x) | {"z": z.transpose(1, 2)})
        return self._scaled(apply_linear(self.out_proj, y))

    def _halves(self, hidden_states: Tensor) -> tuple[Tensor, Tensor]:
        """x and the gate, (batch, L, d_inner) each: two products, so that their gradients need no joining."""
        weights = self.in_proj.weight.chunk(2)
        biases = (None, None) if self.in_proj.bias is None else self.in_proj.bias.chunk(2)
        x, z = (linear(hidden_states, weight, bias) for weight, bias in zip(weights, biases, strict=True))
        return x, z

    def _two_directions(self, x: Tensor, z: Tensor) -> Tensor:
        """Vision Mamba's second way: two scans that share x and the gate, and nothing else."""
        y = gated_mean(_output(self._scan_arguments(x)), _output(self._scan_arguments(x, reverse=True)), z)
        return y if self.if_divide_out else 2 * y

    def _shared_directions(self, hidden_states: Tensor) -> Tensor:
        """Vision Mamba's first way: two scans that share everything but A."""
        return bimamba_inner_fn(
            self.in_proj(hidden_states).transpose(1, 2),
            self.conv1d.weight,
            self.conv1d.bias,
            self.x_proj.weight,
            self.dt_proj.weight,
            self.out_proj.weight,
            self.out_proj.bias,
            _A(self.A_log),
            _A(self.A_b_log),
            D=self.D,
            delta_bias=self.dt_proj.bias,
        )

    def _scan_arguments(self, x: Tensor, reverse: bool = False) -> dict[str, Any]:
        if reverse:
            conv1d, x_proj, dt_proj, A_log, D = self.conv1d_b, self.x_proj_b, self.dt_proj_b, self.A_b_log, self.D_b
        else:
            conv1d, x_proj, dt_proj, A_log, D = self.conv1d, self.x_proj, self.dt_proj, self.A_log, self.D
        weights = conv1d.weight, conv1d.bias, x_proj.weight, dt_proj.weight
        return scan_arguments(x.transpose(1, 2), *weights, _A(A_log), D=D, delta_bias=dt_proj.bias, reverse=reverse)

    def _scaled(self, out: Tensor) -> Tensor:
        return out if self.init_layer_scale is None else out * self.gamma

    # ── token by token ───────────────────────────────────────────────────────────────────────────────────────────────

    def _prefill(self, hidden_states: Tensor, conv_state: Tensor, ssm_state: Tensor) -> Tensor:
        x, z = self._halves(hidden_states)
        conv_state.copy_(F.pad(x.transpose(1, 2), (self.d_conv - x.shape[1], 0)))  # cuts, where there are more
        y, last_state = selective_scan(**self._scan_arguments(x), z=z.transpose(1, 2), return_last_state=True)
        ssm_state.copy_(last_state)
        return self._scaled(apply_linear(self.out_proj, y.transpose(1, 2)))

    def step(self, hidden_states: Tensor, conv_state: Tensor, ssm_state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One token, (batch, 1, d); the states, (batch, d_inner, d_conv) and (batch, d_inner, N), change in place."""
        self._check_one_direction()
        if hidden_states.shape[1] != 1:
            raise ValueError(f"Mamba.step: hidden_states has {hidden_states.shape[1]} tokens, expected 1")
        x, z = self._halves(hidden_states[:, 0])
        x = causal_conv_update(x, conv_state, self.conv1d.weight.squeeze(1), self.conv1d.bias)
        dt, B, C = self.x_proj(x).split([self.dt_rank, self.d_state, self.d_state], dim=-1)
        dt = linear(dt, self.dt_proj.weight)
        y = selective_state_update(
            ssm_state, x, dt, _A(self.A_log), B, C, self.D, z, self.dt_proj.bias, dt_softplus=True
        )
        return self._scaled(self.out_proj(y)).unsqueeze(1), conv_state, ssm_state

    def allocate_inference_cache(
        self, batch_size: int, max_seqlen: int, dtype: torch.dtype | None = None, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """The states before the first token: of the convolution, and of the scan."""
        self._check_one_direction()
        conv, scan = self.conv1d.weight, self.dt_proj.weight
        parts = () if rule().state_parts == 1 else (rule().state_parts,)
        return (
            conv.new_zeros(batch_size, self.d_inner, self.d_conv, dtype=dtype),
            scan.new_zeros(batch_size, self.d_inner, self.d_state, *parts, dtype=dtype),
        )

    def _get_states_from_cache(
        self, inference_params: InferenceParams, batch_size: int, initialize_states: bool = False
    ) -> tuple[Tensor, Tensor]:
        if self.layer_idx is None:
            raise ValueError("Mamba: inference_params needs a layer_idx, and this layer was made without one")
        memory = inference_params.key_value_memory_dict
        if self.layer_idx not in memory:
            memory[self.layer_idx] = self.allocate_inference_cache(batch_size, inference_params.max_seqlen)
        conv_state, ssm_state = memory[self.layer_idx]
        if initialize_states:
            conv_state.zero_()
            ssm_state.zero_()
        return conv_state, ssm_state

    def _check_one_direction(self) -> None:
        if self.bimamba_type != "none":
            raise ValueError(
                f"Mamba: bimamba_type {self.bimamba_type!r} reads both directions, so it cannot run token by token"
            )


def _output(arguments: dict[str, Any]) -> Tensor:
    """What the scan returns, (batch, L, d_inner)."""
    y = selective_scan(**arguments)
    assert isinstance(y, Tensor)
    return y.transpose(1, 2)


def _A(A_log: Tensor) -> Tensor:
    return -torch.exp(A_log.to(torch.promote_types(A_log.dtype, torch.float32)))


def _projections(
    d_inner: int, d_state: int, dt_rank: int, d_conv: int, conv_bias: bool, **made: Any
) -> tuple[nn.Conv1d, nn.Linear, nn.Linear]:
    return (
        nn.Conv1d(d_inner, d_inner, d_conv, groups=d_inner, padding=d_conv - 1, bias=conv_bias, **made),
        nn.Linear(d_inner, dt_rank + 2 * d_state, bias=False, **made),
        nn.Linear(dt_rank, d_inner, **made),
    )


def _recurrence(d_inner: int, d_state: int, device: torch.device | str | None) -> tuple[nn.Parameter, nn.Parameter]:
    """log(−A) with A = −1, −2, …, and D = 1: float32 whatever the rest is, and without weight decay."""
    A_log = nn.Parameter(torch.arange(1.0, d_state + 1, device=device).log().repeat(d_inner, 1))
    D = nn.Parameter(torch.ones(d_inner, device=device))
    A_log._no_weight_decay = D._no_weight_decay = True  # type: ignore[attr-defined]
    return A_log, D
