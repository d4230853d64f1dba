"""All our operators, each as a function of tensors alone, and tensors to call it with."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tustin import selective_scan
from tustin.ops.conv import causal_conv
from tustin.ops.rowwise import gated_mean, rms_norm


def scan(*tensors: Tensor, backend: str = "auto") -> Tensor:
    out = selective_scan(*tensors, delta_softplus=True, discretization="bil", backend=backend)
    assert isinstance(out, Tensor)
    return out


def conv(*tensors: Tensor, backend: str = "auto") -> Tensor:
    return causal_conv(*tensors, backend=backend)


def gate(*tensors: Tensor, backend: str = "auto") -> Tensor:
    return gated_mean(*tensors, backend=backend)


def norm(*tensors: Tensor, backend: str = "auto") -> Tensor:
    return rms_norm(*tensors, 1e-5, backend=backend)


SHAPES = {
    scan: [(2, 5, 7), (2, 5, 7), (5, 3), (2, 3, 7), (2, 3, 7)],
    conv: [(2, 5, 7), (5, 4)],
    gate: [(2, 7, 5)] * 3,
    norm: [(2, 7, 5), (5,)],
}
OPERATORS = {
    scan: "tustin::selective_scan",
    conv: "tustin::causal_conv",
    gate: "tustin::gated_mean",
    norm: "tustin::rms_norm",
}
each_operator = pytest.mark.parametrize("call", OPERATORS, ids=lambda call: call.__name__)
Call = Callable[..., Tensor]


def tensors_for(call: Call, requires_grad: bool = False, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(shape, generator=generator) for shape in SHAPES[call]]
    if call is scan:
        tensors[2] = -tensors[2].abs()
    return [t.requires_grad_(requires_grad) for t in tensors]
