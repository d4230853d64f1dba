"""Add, then normalise: LayerNorm and RMSNorm with the residual stream and dropout around them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tustin.ops.rowwise import rms_norm

__all__ = ["RMSNorm", "layer_norm_fn", "rms_norm_fn"]


def layer_norm_fn(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    residual: Tensor | None = None,
    x1: Tensor | None = None,
    weight1: Tensor | None = None,
    bias1: Tensor | None = None,
    eps: float = 1e-6,
    dropout_p: float = 0.0,
    rowscale: Tensor | None = None,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
    is_rms_norm: bool = False,
    return_dropout_mask: bool = False,
) -> Any:
    """norm(dropout(rowscale · x) + dropout(x1) + residual), computed in float32, or float64 if x is.

    Args:
        x: (…, D).
        weight: (D,).
        bias: (D,).
        residual: Added before the norm; sets the dtype of the sum that `prenorm` returns.
        x1: A second branch, with a dropout of its own.
        weight1: With it the same sum is normalised a second time, and comes out second.
        bias1: Goes with weight1.
        eps: Added to the variance, or to the mean of the squares.
        dropout_p: Probability with which an entry of x, and of x1, is dropped.
        rowscale: One factor a token for x, (…).
        prenorm: Also return the sum, last.
        residual_in_fp32: Without a residual: the sum is float32 whatever x is.
        is_rms_norm: RMSNorm instead of LayerNorm.
        return_dropout_mask: Not supported.

    Returns:
        The norm in the dtype of x; with weight1 or prenorm a tuple.
    """
    if return_dropout_mask:
        raise NotImplementedError("layer_norm_fn: return_dropout_mask is not supported by tustin.compat")
    if x1 is not None and rowscale is not None:
        raise ValueError("layer_norm_fn: rowscale cannot be used together with x1")
    dtype = torch.promote_types(x.dtype, torch.float32)
    total = x.to(dtype)
    if rowscale is not None:
        total = total * rowscale[..., None]
    if dropout_p > 0:
        total = F.dropout(total, dropout_p)
    if x1 is not None:
        total = total + (F.dropout(x1.to(dtype), dropout_p) if dropout_p > 0 else x1)
    if residual is not None:
        total = total + residual
    stored = torch.float32 if residual_in_fp32 else x.dtype
    after = total.to(stored if residual is None else residual.dtype)

    outputs = [_norm(total, weight, bias, eps, is_rms_norm).to(x.dtype)]
    if weight1 is not None:
        outputs.append(_norm(total, weight1, bias1, eps, is_rms_norm).to(x.dtype))
    if prenorm:
        outputs.append(after)
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def rms_norm_fn(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    residual: Tensor | None = None,
    x1: Tensor | None = None,
    weight1: Tensor | None = None,
    bias1: Tensor | None = None,
    eps: float = 1e-6,
    dropout_p: float = 0.0,
    rowscale: Tensor | None = None,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
    return_dropout_mask: bool = False,
) -> Any:
    """`layer_norm_fn` with `is_rms_norm=True`."""
    return layer_norm_fn(
        x,
        weight,
        bias,
        residual,
        x1,
        weight1,
        bias1,
        eps,
        dropout_p,
        rowscale,
        prenorm,
        residual_in_fp32,
        True,
        return_dropout_mask,
    )


def _norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, is_rms_norm: bool) -> Tensor:
    weight = weight.to(x.dtype)
    if not is_rms_norm:
        return F.layer_norm(x, weight.shape, weight, None if bias is None else bias.to(x.dtype), eps)
    y = rms_norm(x, weight, eps)
    return y if bias is None else y + bias


class RMSNorm(nn.Module):
    """x / √(mean(x²) + eps) · weight, optionally after dropout and the addition of a residual."""

    bias: None

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-5,
        dropout_p: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.eps = eps
        self.drop = nn.Dropout(dropout_p) if dropout_p > 0 else None
        self.weight = nn.Parameter(torch.empty(hidden_size, device=device, dtype=dtype))
        self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.ones_(self.weight)

    def forward(
        self, x: Tensor, residual: Tensor | None = None, prenorm: bool = False, residual_in_fp32: bool = False
    ) -> Any:
        return rms_norm_fn(
            x,
            self.weight,
            self.bias,
            residual=residual,
            eps=self.eps,
            dropout_p=self.drop.p if self.drop is not None and self.training else 0.0,
            prenorm=prenorm,
            residual_in_fp32=residual_in_fp32,
        )
