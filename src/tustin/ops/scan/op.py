"""The scan as a PyTorch operator, with its shapes and its gradient registered once for every fused backend."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...discretize import get_discretization
from ..dispatch import kernels
from ..native import in_huge_pages
from ..operators import check_memory, pull_back, register
from . import reference
from .arguments import SCHEMA, TENSORS, Options, Tensors, empty_state, split

_PACKAGE = __name__.rpartition(".")[0]
_SMALL = ("A", "D", "delta_bias", "initial_state")


def _forward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The output, the last state, and with `keep_states` the state before each chunk, which the backward pass needs."""
    tensors, options = split(arguments)
    keep_states, u = arguments[-1], tensors.u
    chunk_states = _empty_chunk_states(u, tensors.A, keep_states)
    if u.is_cpu:
        in_huge_pages(chunk_states)
    fused = kernels(_PACKAGE, u.device)
    return *fused.forward(tensors, options, chunk_states if keep_states else None), chunk_states


def _forward_fake(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    (u, _, A, *_), options = split(arguments)
    last_state = empty_state(u, A, get_discretization(options.discretization))
    return torch.empty_like(u), last_state, _empty_chunk_states(u, A, arguments[-1])


def _definition(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The same in plain PyTorch, which needs no states to be kept."""
    tensors, options = split(arguments)
    out, last_state = reference.scan(tensors, options, get_discretization(options.discretization), tensors.A.dtype)
    return out, last_state, _empty_chunk_states(tensors.u, tensors.A, keep=False)


def _backward(d_out: Tensor, d_last_state: Tensor | None, *arguments: Any) -> tuple[Tensor, ...]:
    """The gradients of the tensors that are given, in the order of the arguments."""
    gradients = kernels(_PACKAGE, d_out.device).backward(d_out, d_last_state, *split(arguments), arguments[-1])
    return tuple([gradient for gradient in gradients if gradient is not None])


def _backward_fake(d_out: Tensor, d_last_state: Tensor | None, *arguments: Any) -> list[Tensor]:
    tensors, _ = split(arguments)
    dense = ("u", "delta", "B", "C", "z", "mix")
    return [
        torch.empty_like(t) if name in dense and t.ndim > 2 else t.new_empty(t.shape)
        for name, t in tensors._asdict().items()
        if t is not None
    ]


def _backward_definition(d_out: Tensor, d_last_state: Tensor | None, *arguments: Any) -> tuple[Tensor, ...]:
    def scan(*arguments: Any) -> tuple[Tensor, ...]:
        out, last_state, _ = _definition(*arguments)
        return (out,) if d_last_state is None else (out, last_state)

    without_states = arguments[:-1]
    return pull_back(scan, without_states, (d_out,) if d_last_state is None else (d_out, d_last_state))


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    tensors, ctx.options, keep_states = inputs[:TENSORS], inputs[TENSORS:-1], inputs[-1]
    if not keep_states:
        raise RuntimeError("selective_scan: gradients were requested, but the states that they need were not kept")
    ctx.save_for_backward(*tensors, output[2])
    ctx.mark_non_differentiable(output[2])
    ctx.set_materialize_grads(False)


def _gradient(ctx: Any, d_out: Tensor | None, d_last_state: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
    *tensors, chunk_states = ctx.saved_tensors
    if d_out is None:
        d_out = torch.zeros_like(tensors[0])
    gradients = iter(_scan_backward(d_out, d_last_state, *tensors, *ctx.options, chunk_states))
    return *[None if t is None else next(gradients) for t in tensors], *[None] * (len(ctx.options) + 1)


_scan = register(
    "selective_scan",
    f"({SCHEMA}, bool keep_states) -> (Tensor, Tensor, Tensor)",
    _forward,
    _forward_fake,
    _definition,
    _gradient,
    _setup_context,
)
_scan_backward = register(
    "selective_scan_backward",
    f"(Tensor d_out, Tensor? d_last_state, {SCHEMA}, Tensor chunk_states) -> Tensor[]",
    _backward,
    _backward_fake,
    _backward_definition,
)


def scan(tensors: Tensors, options: Options, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The scan through the operator. Small tensors are brought to `dtype` here, the large ones inside the kernel."""
    small = zip(_SMALL, (tensors.A, tensors.D, tensors.delta_bias, tensors.initial_state), strict=True)
    if others := {name: _converted(t, dtype) for name, t in small if t is not None and t.dtype != dtype}:
        tensors = tensors._replace(**others)
    keep_states = torch.is_grad_enabled() and True in [t.requires_grad for t in tensors if t is not None]
    if not torch.compiler.is_compiling():  # before PyTorch 2.15 the compiler cannot ask what follows
        keep_states = keep_states or torch._C._is_tracing()  # whose check computes again, but without gradients
    out, last_state, _ = _scan(*tensors, *options, keep_states)
    return out, last_state


def _converted(t: Tensor, dtype: torch.dtype) -> Tensor:
    check_memory("selective_scan", t)
    return t.to(dtype)


def _empty_chunk_states(u: Tensor, A: Tensor, keep: bool) -> Tensor:
    """Room for (batch, chunks, N, D) states, or for none."""
    chunks = -(-u.shape[2] // kernels(_PACKAGE, u.device).chunk_length()) if keep else 0
    return A.new_empty(u.shape[0], chunks, A.shape[1], u.shape[1])
