"""The definition of the causal convolution, in plain PyTorch: any device; autograd supplies the gradients."""

from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor


def conv(x: Tensor, weight: Tensor, bias: Tensor | None, silu: bool, reverse: bool) -> Tensor:
    """`causal_conv`, computed in float32, or float64 if an argument is, whatever autocast says."""
    tensors = (x, weight) if bias is None else (x, weight, bias)
    dtype = torch.float64 if any(t.dtype == torch.float64 for t in tensors) else torch.float32
    past = weight.shape[1] - 1
    kernel = weight.flip(1) if reverse else weight
    device = x.device.type
    with torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext():
        padded = F.pad(x.to(dtype), (0, past) if reverse else (past, 0))
        bias = bias if bias is None else bias.to(dtype)
        y = F.conv1d(padded, kernel.to(dtype)[:, None], bias, groups=x.shape[1])
        return (F.silu(y) if silu else y).to(x.dtype)
