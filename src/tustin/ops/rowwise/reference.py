"""The definitions, in plain PyTorch: any device; autograd supplies the gradients."""

import torch
import torch.nn.functional as F
from torch import Tensor


def gated_mean(a: Tensor, b: Tensor, gate: Tensor) -> Tensor:
    return (a + b) / 2 * F.silu(gate)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    dtype = torch.promote_types(torch.promote_types(x.dtype, weight.dtype), torch.float32)
    return F.rms_norm(x.to(dtype), weight.shape, weight.to(dtype), eps).to(weight.dtype)
