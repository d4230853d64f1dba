"""Our operators: what PyTorch's tools see of them, and the short way past the dispatcher where nobody looks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .accelerator import GPUS

_PLAIN = (Tensor, torch.nn.Parameter)


def register(
    name: str,
    schema: str,
    run: Callable[..., Any],
    fake: Callable[..., Any],
    gradient: Callable[..., Any] | None = None,
    setup_context: Callable[..., None] | None = None,
    devices: Sequence[str] = ("cpu", *GPUS),
) -> Callable[..., Any]:
    """Define the operator `tustin::name` and return the function to call. One without a gradient is itself one.

    torch.compile, torch.export, autocast, profilers and the like see an operator, with its shapes (`fake`) and its
    gradient. It is registered piece by piece, not with `torch.library.custom_op`, and where nothing of that kind is at
    work the function goes straight to `run`: the way through the dispatcher takes as long as a small scan.
    """
    derivative = gradient or _no_second_derivative(name.removesuffix("_backward"))
    qualified = f"tustin::{name}"
    torch.library.define(qualified, schema)
    torch.library.impl(qualified, devices, run)
    torch.library.register_fake(qualified, fake)
    torch.library.register_autograd(qualified, derivative, setup_context=setup_context)
    operator = getattr(torch.ops.tustin, name).default

    class Direct(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> Any:
            outputs = run(*arguments)
            if setup_context is not None:
                setup_context(ctx, arguments, outputs)
            return outputs

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return derivative(ctx, *gradients)

    Direct.__name__ = name  # autograd shows it

    def call(*arguments: Any) -> Any:
        if _observed():
            return operator(*arguments)
        needs_gradient = False
        for argument in arguments:
            if isinstance(argument, Tensor):
                if type(argument) not in _PLAIN:
                    return operator(*arguments)
                needs_gradient |= argument.requires_grad
        return Direct.apply(*arguments) if needs_gradient and torch.is_grad_enabled() else run(*arguments)

    return call


def _no_second_derivative(name: str) -> Callable[..., Any]:
    def refuse(ctx: Any, *gradients: Any) -> None:
        raise NotImplementedError(f"{name}: this backend has no second derivatives; use backend='reference'")

    return refuse


def _observed() -> bool:
    """Whether something wants to see each operator: a tracer, a mode, a function transform, a profiler."""
    return (
        torch.compiler.is_compiling()
        or torch._C._is_tracing()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._len_torch_function_stack() > 0
        or torch._C._are_functorch_transforms_active()
        or torch._C._autograd._profiler_enabled()
    )
