"""The scan as a PyTorch operator, with its shapes and its gradient registered once for every fused backend."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..accelerator import interpreted
from ..discretize import Method, get_method
from ..native import in_huge_pages
from ..operators import check_memory, pull_back, register
from . import native, reference

_INTERPRETED = interpreted()
_GRADIENTS = ("u", "delta", "A", "B", "C", "D", "z", "delta_bias", "initial_state")


def _kernels(u: Tensor) -> Any:
    """The fused code for the device of u: C++, or Triton, which is imported only where it runs."""
    if u.is_cpu and not _INTERPRETED:
        return native
    from . import triton

    return triton


def _forward(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    z: Tensor | None,
    delta_bias: Tensor | None,
    initial_state: Tensor | None,
    delta_softplus: bool,
    method: str,
    reverse: bool,
    keep_states: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The output, the last state, and with `keep_states` the state before each chunk, which the backward pass needs."""
    chunk_states = _empty_chunk_states(u, A, keep_states)
    if u.is_cpu:
        in_huge_pages(chunk_states)
    out, last_state = _kernels(u).forward(
        u,
        delta,
        A,
        B,
        C,
        D,
        z,
        delta_bias,
        initial_state,
        delta_softplus,
        method,
        reverse,
        chunk_states if keep_states else None,
    )
    return out, last_state, chunk_states


def _forward_fake(u: Tensor, delta: Tensor, A: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    *_, keep_states = others
    last_state = A.new_empty(u.shape[0], u.shape[1], A.shape[1])
    return torch.empty_like(u), last_state, _empty_chunk_states(u, A, keep_states)


def _definition(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The same in plain PyTorch, which needs no states to be kept."""
    *tensors, delta_softplus, method, reverse, _ = arguments
    u, _, A, *_ = tensors
    how = {"delta_softplus": delta_softplus, "method": get_method(method), "reverse": reverse}
    return *reference.scan(*tensors, dtype=A.dtype, **how), _empty_chunk_states(u, A, keep=False)


def _backward(
    d_out: Tensor,
    d_last_state: Tensor | None,
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    z: Tensor | None,
    delta_bias: Tensor | None,
    initial_state: Tensor | None,
    delta_softplus: bool,
    method: str,
    reverse: bool,
    chunk_states: Tensor,
) -> tuple[Tensor, ...]:
    """The gradients of the tensors that are given, in the order of the arguments."""
    gradients = _kernels(u).backward(
        d_out,
        d_last_state,
        u,
        delta,
        A,
        B,
        C,
        D,
        z,
        delta_bias,
        initial_state,
        delta_softplus,
        method,
        reverse,
        chunk_states,
    )
    return tuple([gradients[name] for name in _GRADIENTS if name in gradients])


def _backward_fake(d_out: Tensor, d_last_state: Tensor | None, *arguments: Any) -> list[Tensor]:
    tensors = dict(zip(_GRADIENTS, arguments, strict=False))
    dense = ("u", "delta", "B", "C", "z")
    return [
        torch.empty_like(t) if name in dense and t.ndim > 2 else t.new_empty(t.shape)
        for name, t in tensors.items()
        if t is not None
    ]


def _backward_definition(d_out: Tensor, d_last_state: Tensor | None, *arguments: Any) -> tuple[Tensor, ...]:
    *without_states, _ = arguments

    def scan(*arguments: Any) -> tuple[Tensor, ...]:
        out, last_state, _ = _definition(*arguments, False)
        return (out,) if d_last_state is None else (out, last_state)

    return pull_back(scan, without_states, (d_out,) if d_last_state is None else (d_out, d_last_state))


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.delta_softplus, ctx.method, ctx.reverse, keep_states = inputs
    if not keep_states:
        raise RuntimeError("selective_scan: gradients were asked for, but the states they need were not kept")
    ctx.given = [t is not None for t in tensors]
    ctx.save_for_backward(*tensors, output[2])
    ctx.mark_non_differentiable(output[2])
    ctx.set_materialize_grads(False)


def _gradient(ctx: Any, d_out: Tensor | None, d_last_state: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
    *tensors, chunk_states = ctx.saved_tensors
    if d_out is None:
        d_out = torch.zeros_like(tensors[0])
    gradients = iter(
        _scan_backward(d_out, d_last_state, *tensors, ctx.delta_softplus, ctx.method, ctx.reverse, chunk_states)
    )
    return *[next(gradients) if given else None for given in ctx.given], None, None, None, None


_TENSORS = "Tensor u, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor? D, Tensor? z, Tensor? delta_bias"
_ARGUMENTS = f"{_TENSORS}, Tensor? initial_state, bool delta_softplus, str method, bool reverse"

_scan = register(
    "selective_scan",
    f"({_ARGUMENTS}, bool keep_states) -> (Tensor, Tensor, Tensor)",
    _forward,
    _forward_fake,
    _definition,
    _gradient,
    _setup_context,
)
_scan_backward = register(
    "selective_scan_backward",
    f"(Tensor d_out, Tensor? d_last_state, {_ARGUMENTS}, Tensor chunk_states) -> Tensor[]",
    _backward,
    _backward_fake,
    _backward_definition,
)


def scan(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    z: Tensor | None,
    delta_bias: Tensor | None,
    initial_state: Tensor | None,
    *,
    dtype: torch.dtype,
    delta_softplus: bool,
    method: Method,
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    """The scan through the operator. Small tensors are brought to `dtype` here, the large ones inside the kernel."""
    A = A if A.dtype == dtype else _converted(A, dtype)
    D, delta_bias, initial_state = [
        t if t is None or t.dtype == dtype else _converted(t, dtype) for t in (D, delta_bias, initial_state)
    ]
    tensors = (u, delta, A, B, C, D, z, delta_bias, initial_state)
    keep_states = torch.is_grad_enabled() and True in [t.requires_grad for t in tensors if t is not None]
    out, last_state, _ = _scan(*tensors, delta_softplus, method.name, reverse, keep_states)
    return out, last_state


def _converted(t: Tensor, dtype: torch.dtype) -> Tensor:
    check_memory("selective_scan", t)
    return t.to(dtype)


def _empty_chunk_states(u: Tensor, A: Tensor, keep: bool) -> Tensor:
    """Room for (batch, chunks, N, D) states, or for none."""
    chunks = -(-u.shape[2] // _kernels(u).chunk_length()) if keep else 0
    return A.new_empty(u.shape[0], chunks, A.shape[1], u.shape[1])
