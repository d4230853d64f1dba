"""What every operator insists on: each mistake is one sentence that names the argument and what was expected."""

from __future__ import annotations

import torch
from torch import Tensor

from .native import DTYPES

_KNOWN = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)


def check_tensor(operator: str, name: str, tensor: object) -> Tensor:
    """The argument, if it is a dense tensor of one of `DTYPES`."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{operator}: {name} must be a tensor, got {type(tensor).__name__}")
    dtype = tensor.dtype
    if dtype not in DTYPES:
        complex_numbers = "complex numbers are not supported, " if dtype.is_complex else ""
        raise TypeError(f"{operator}: {name} is {dtype}; {complex_numbers}expected one of {_KNOWN}")
    if tensor.layout is not torch.strided:
        raise TypeError(f"{operator}: {name} has the layout {tensor.layout}; expected a dense tensor, torch.strided")
    if tensor.is_nested:
        raise TypeError(f"{operator}: {name} is a nested tensor; expected one of a single shape")
    return tensor


def check_overwritable(operator: str, name: str, tensor: Tensor) -> None:
    """Raise if several of its elements may share one place in memory."""
    if tensor.is_contiguous():
        return
    reach = 0  # of the dimensions with smaller steps
    for step, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and step <= reach:
            raise ValueError(
                f"{operator}: {name} is overwritten, but some of its elements may share memory, as in an expanded "
                "tensor; expected a tensor without such overlaps"
            )
        reach += (size - 1) * step


def check_flags(operator: str, **flags: bool) -> None:
    """Raise unless each is True or False."""
    for name, value in flags.items():
        if value is not True and value is not False:
            raise TypeError(f"{operator}: {name} must be True or False, got {value!r}")


def misshapen(operator: str, name: str, tensor: Tensor, expected: str) -> ValueError:
    return ValueError(f"{operator}: {name} has shape {tuple(tensor.shape)}, expected {expected}")


def real_dtype(*tensors: Tensor | None) -> torch.dtype:
    """In which an operator computes: float32, or float64 if an argument is."""
    return torch.float64 if torch.float64 in [t.dtype for t in tensors if t is not None] else torch.float32
