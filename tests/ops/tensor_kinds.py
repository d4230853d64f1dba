"""Tensors that are more than numbers in memory, made of ordinary ones."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.testing._internal.two_tensor import TwoTensor


class Subclass(Tensor):
    """With PyTorch's own __torch_function__."""


class Silent(Tensor):
    """With none."""

    __torch_function__ = torch._C._disabled_torch_function_impl


def negated(t: Tensor) -> Tensor:
    """−t, of which only the sign bit is lazy."""
    view = torch.complex(t, t).conj().imag if t.dtype in (torch.float32, torch.float64) else torch._neg_view(t)
    assert view.is_neg()
    return view


def without_memory(t: Tensor) -> Tensor:
    return torch._efficientzerotensor(t.shape, dtype=t.dtype)


def written_in_inference_mode(t: Tensor) -> Tensor:
    with torch.inference_mode():
        return t.clone()


def out_of_grad(t: Tensor) -> Tensor:
    taken: list[Tensor] = []
    torch.func.grad(lambda x: (taken.append(x), x.sum())[1])(t)
    return taken[0]


USABLE: dict[str, Callable[[Tensor], Tensor]] = {
    "negated": negated,
    "zeros without memory": without_memory,
    "parameter": torch.nn.Parameter,
    "subclass": lambda t: t.as_subclass(Subclass),
    "silent subclass": lambda t: t.as_subclass(Silent),
    "wrapper of two": lambda t: TwoTensor(t, t),
    "inference": written_in_inference_mode,
    "out of grad": out_of_grad,
    "functional": torch._to_functional_tensor,
    "part of a functional": lambda t: torch._to_functional_tensor(torch.cat([t[:1], t]))[1:],
    "part of zeros without memory": lambda t: without_memory(torch.cat([t[:1], t]))[1:],
    "copied on write": torch._lazy_clone,
    "overlapping": lambda t: t[..., :1].expand_as(t),
}


def plain(t: Tensor) -> Tensor:
    """The numbers of it."""
    if isinstance(t, TwoTensor):
        t = t.a
    if torch._is_functional_tensor(t):
        t = torch._from_functional_tensor(t)
    return t.as_subclass(Tensor).clone().resolve_neg()


def freed(t: Tensor) -> Tensor:
    t = t.clone()
    t.untyped_storage().resize_(0)
    return t


def part_of_freed(t: Tensor) -> Tensor:
    t = torch.cat([t[:1], t])[1:]
    t.untyped_storage().resize_(0)
    return t


def transposed_and_freed(t: Tensor) -> Tensor:
    return freed(t.mT.contiguous().mT if t.ndim > 1 else t)


def out_of_vmap(t: Tensor) -> Tensor:
    taken: list[Tensor] = []
    torch.func.vmap(lambda x: (taken.append(x), x)[1])(torch.stack([t, t]))
    return taken[0]


UNUSABLE: dict[Callable[[Tensor], Tensor], str] = {
    freed: "has no memory, its storage was freed",
    transposed_and_freed: "has no memory, its storage was freed",
    part_of_freed: "has no memory, its storage was freed",
    out_of_vmap: "a tensor was used outside of its vmap",
    Tensor.to_sparse: "has the layout torch.sparse_coo; expected a dense tensor",
    Tensor.to_mkldnn: "has the layout torch._mkldnn; expected a dense tensor",
    lambda t: torch.nested.nested_tensor([t, t], layout=torch.jagged): "has the layout torch.jagged; expected a dense",
    lambda t: torch.quantize_per_tensor(t, 0.1, 0, torch.qint8): "is torch.qint8; expected one of float32",
    lambda t: t.to(torch.float8_e5m2): "is torch.float8_e5m2; expected one of float32",
}
"""And with which words they are refused."""
