"""The short causal convolution before the scan, with its bias and SiLU, in one pass over memory."""

from __future__ import annotations

from torch import Tensor

from ...support.devices import GPUS
from ..checks import check_flags, check_tensor, misshapen
from ..dispatch import NATIVE, REFERENCE, TRITON, choose, declare
from . import op, reference

__all__ = ["causal_conv"]

# Elsewhere PyTorch's own convolution is all there is, and not slow.
declare("causal_conv", NATIVE, TRITON, REFERENCE, warns=lambda device: device.type in ("cpu", *GPUS))


def causal_conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    silu: bool = True,
    reverse: bool = False,
    backend: str = "auto",
) -> Tensor:
    """Convolve each channel with its own short causal filter, then apply SiLU.

        out_k = silu(bias + Σ_j weight_j · x_{k−K+1+j})        j = 0 … K−1, and zeros before the first token

    Args:
        x: Input, (batch, D, L), of any strides.
        weight: One filter per channel, (D, K); its last entry multiplies the current token.
        bias: Added before the SiLU, (D,).
        silu: Apply the SiLU.
        reverse: Use the following tokens instead of the previous ones: the same as flipping x in time, and then the
            output.
        backend: "auto", "native" (CPU), "triton" (GPU) or "reference". Under the transforms of `torch.func` and in
            forward-mode differentiation the reference replaces a fused backend.

    Returns:
        The output, (batch, D, L) in the dtype of x. Inside, everything is float32, or float64 if an argument is.
    """
    _check(x, weight, bias, silu, reverse)
    chosen = choose("causal_conv", backend, x.device)
    return (reference.conv if chosen == "reference" else op.conv)(x, weight, bias, silu, reverse)


def _check(x: Tensor, weight: Tensor, bias: Tensor | None, silu: bool, reverse: bool) -> None:
    for name, tensor in (("x", x), ("weight", weight), ("bias", bias)):
        if tensor is None and name == "bias":
            continue
        device = check_tensor("causal_conv", name, tensor).device
        if device != x.device:
            raise ValueError(f"causal_conv: {name} is on {device}, but x is on {x.device}")
    check_flags("causal_conv", silu=silu, reverse=reverse)
    if x.ndim != 3 or x.shape[2] == 0:
        raise misshapen("causal_conv", "x", x, "(batch, D, L) with L of at least 1")
    D = x.shape[1]
    if weight.ndim != 2 or weight.shape[0] != D or weight.shape[1] == 0:
        raise misshapen("causal_conv", "weight", weight, f"(D, K) with D = {D}, as x has, and K of at least 1")
    if bias is not None and (bias.ndim != 1 or bias.shape[0] != D):
        raise misshapen("causal_conv", "bias", bias, f"({D},)")
