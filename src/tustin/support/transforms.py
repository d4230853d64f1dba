"""Whether PyTorch is transforming the computation: `torch.func`, or forward-mode differentiation.

Both questions are private in PyTorch, because it has no public way to ask them.
"""

from __future__ import annotations

import torch
from torch.autograd import forward_ad


def transformed() -> bool:
    """Whether a function transform (grad, vjp, jvp, vmap, …) is active, or tensors may carry a tangent."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def forward_mode() -> bool:
    """Whether tensors may carry a tangent: inside `torch.autograd.forward_ad.dual_level()`, or `torch.func.jvp`."""
    return forward_ad._current_level >= 0
