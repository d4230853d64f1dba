"""Whether tensors are those of a model: the same names, the same shapes, and numbers of a kind that weights have."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

import torch
from torch import Tensor, nn

__all__ = ["CheckpointError", "check_dtypes", "insist_on_names_and_shapes"]

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class CheckpointError(ValueError):
    """A file that cannot be read, or that does not fit the model."""


def insist_on_names_and_shapes(model: nn.Module, state: Mapping[str, Tensor], source: str) -> None:
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    missing = [name for name in expected if name not in state]
    unexpected = [name for name in state if name not in expected]
    misshapen = [
        f"{name} is {tuple(state[name].shape)} in the file, {shape} in the model"
        for name, shape in expected.items()
        if name in state and tuple(state[name].shape) != shape
    ]
    if not missing and not unexpected and not misshapen:
        return

    def with_nearest(name: str) -> str:
        near = difflib.get_close_matches(name, unexpected, n=1, cutoff=0.8)
        return f"{name} (the file has {near[0]})" if near else name

    lines = [
        f"  {what}, {len(names)} of them: {'; '.join(names[:4])}{'; …' if len(names) > 4 else ''}"
        for what, names in (
            ("missing", [*map(with_nearest, missing[:4]), *missing[4:]]),
            ("unexpected", unexpected),
            ("other shape", misshapen),
        )
        if names
    ]
    raise CheckpointError("\n".join([f"{source} does not fit the model (nothing was loaded)", *lines]))


def check_dtypes(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    for name, wanted in model.state_dict().items():
        dtype = tensors[name].dtype
        if dtype not in DTYPES if wanted.is_floating_point() else dtype != wanted.dtype:
            raise ValueError(f"its tensor {name} is of {dtype}")
