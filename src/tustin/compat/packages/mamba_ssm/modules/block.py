"""The block around a mixer: add, normalise, mix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..ops.triton.layer_norm import RMSNorm, layer_norm_fn

__all__ = ["Block"]


class Block(nn.Module):
    """(hidden_states, residual) → (mixer(norm(hidden_states + residual)), hidden_states + residual).

    Before version 2 there was no `mlp_cls`, and `norm_cls` came third; by keyword both work.
    """

    def __init__(
        self,
        dim: int,
        mixer_cls: Callable[[int], nn.Module],
        mlp_cls: Callable[[int], nn.Module] = nn.Identity,
        norm_cls: Callable[[int], nn.Module] = nn.LayerNorm,
        fused_add_norm: bool = False,
        residual_in_fp32: bool = False,
    ) -> None:
        super().__init__()
        self.residual_in_fp32, self.fused_add_norm = residual_in_fp32, fused_add_norm
        self.norm = norm_cls(dim)
        self.mixer = mixer_cls(dim)
        self.mlp = None
        if mlp_cls is not nn.Identity:
            self.norm2 = norm_cls(dim)
            self.mlp = mlp_cls(dim)
        if fused_add_norm and not isinstance(self.norm, nn.LayerNorm | RMSNorm):
            raise TypeError(f"Block: fused_add_norm needs a LayerNorm or RMSNorm, got {type(self.norm).__name__}")

    def forward(
        self, hidden_states: Tensor, residual: Tensor | None = None, inference_params: Any = None, **mixer_kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        hidden_states, residual = self._add_norm(self.norm, hidden_states, residual)
        hidden_states = self.mixer(hidden_states, inference_params=inference_params, **mixer_kwargs)
        if self.mlp is not None:
            hidden_states, residual = self._add_norm(self.norm2, hidden_states, residual)
            hidden_states = self.mlp(hidden_states)
        return hidden_states, residual

    def _add_norm(self, norm: Any, hidden_states: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
        if self.fused_add_norm:
            normed, total = layer_norm_fn(
                hidden_states,
                norm.weight,
                norm.bias,
                residual=residual,
                eps=norm.eps,
                prenorm=True,
                residual_in_fp32=self.residual_in_fp32,
                is_rms_norm=isinstance(norm, RMSNorm),
            )
            return normed, total
        total = hidden_states if residual is None else hidden_states + residual
        normed = norm(total.to(norm.weight.dtype))
        return normed, total.to(torch.float32) if self.residual_in_fp32 else total

    def allocate_inference_cache(
        self, batch_size: int, max_seqlen: int, dtype: torch.dtype | None = None, **kwargs: Any
    ) -> Any:
        return self.mixer.allocate_inference_cache(batch_size, max_seqlen, dtype=dtype, **kwargs)  # type: ignore[operator]
