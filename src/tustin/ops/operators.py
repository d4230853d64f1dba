"""Our operators: what PyTorch's tools see of them, and the short way past the dispatcher where nobody looks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..support.devices import GPUS
from ..support.transforms import forward_mode, transformed
from .checks import check_tensor

_PLAIN = (Tensor, torch.nn.Parameter)

DEFINITIONS: dict[Any, Callable[..., Any]] = {}
"""Each operator in plain PyTorch."""

_LIBRARY = torch.library.Library("tustin", "FRAGMENT")  # what is registered lives as long as this object


def register(
    name: str,
    schema: str,
    run: Callable[..., Any],
    fake: Callable[..., Any],
    definition: Callable[..., Any],
    gradient: Callable[..., Any] | None = None,
    setup_context: Callable[..., None] | None = None,
    devices: Sequence[str] = ("cpu", *GPUS),
) -> Callable[..., Any]:
    """Define the operator `tustin::name` and return the function to call. One without a gradient is itself one.

    torch.compile, torch.export, autocast, profilers and the like see an operator, with its shapes (`fake`) and its
    gradient. It is registered piece by piece, not with `torch.library.custom_op`, and where nothing of that kind is at
    work the function goes straight to `run`: the way through the dispatcher takes as long as a small scan.

    Under a transform of `torch.func` and in forward-mode differentiation the operator is its `definition` in plain
    PyTorch, which PyTorch can transform in every way; it is as exact, and slower.

    `run` meets only tensors whose memory holds their values: the dispatcher resolves those that are negated lazily,
    and gives memory to those that are zeros without any.
    """
    forward = name.removesuffix("_backward")
    derivative = gradient or _no_second_derivative(forward)
    qualified = f"tustin::{name}"

    def kernel(*arguments: Any) -> Any:
        for argument in arguments:
            if isinstance(argument, Tensor):
                _check_no_tangent(forward, argument)
        return run(*arguments)

    torch.library.define(qualified, schema)
    torch.library.impl(qualified, devices, kernel)
    torch.library.register_fake(qualified, fake)
    torch.library.register_autograd(qualified, derivative, setup_context=setup_context)
    _LIBRARY.impl(name, definition, "FuncTorchDynamicLayerFrontMode")  # where every transform of torch.func begins
    _LIBRARY.impl(name, definition, "Batched")  # the older vmap, of autograd.grad(is_grads_batched=True)
    operator = getattr(torch.ops.tustin, name).default
    DEFINITIONS[operator] = definition

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

    def dispatch(*arguments: Any) -> Any:
        for argument in arguments:
            if isinstance(argument, Tensor):
                check_tensor(forward, "a gradient", argument)  # the arguments of the user have been checked
                check_memory(forward, argument)
        return operator(*arguments)

    def call(*arguments: Any) -> Any:
        if observed():
            return definition(*arguments) if forward_mode() else dispatch(*arguments)
        needs_gradient = needs_gradient_of(arguments)
        if needs_gradient is None:
            return dispatch(*arguments)
        return Direct.apply(*arguments) if needs_gradient and torch.is_grad_enabled() else run(*arguments)

    return call


def register_in_place(
    name: str,
    schema: str,
    run: Callable[..., Any],
    fake: Callable[..., Any],
    definition: Callable[..., Any],
    devices: Sequence[str] = ("cpu", *GPUS),
) -> Callable[..., Any]:
    """Define the operator `tustin::name`, which overwrites its first argument, and return the function to call.

    PyTorch derives no such operator. Where a gradient is needed, under a transform, and for tensors whose memory does
    not hold their values it is its `definition`, made of operators that PyTorch can derive.
    """
    qualified = f"tustin::{name}"

    def kernel(state: Tensor, *arguments: Any) -> Any:
        out = run(state, *arguments)
        torch._C._increment_version((state,))  # as torch.autograd.graph.increment_version; autograd must know
        return out

    torch.library.define(qualified, schema)
    torch.library.impl(qualified, devices, kernel)
    torch.library.register_fake(qualified, fake)
    _LIBRARY.impl(name, definition, "FuncTorchDynamicLayerFrontMode")
    operator = getattr(torch.ops.tustin, name).default

    def call(*arguments: Any) -> Any:
        if observed():
            needed = torch.is_grad_enabled() and True in [t.requires_grad for t in arguments if isinstance(t, Tensor)]
            return (definition if needed or forward_mode() else operator)(*arguments)
        needs_gradient = needs_gradient_of(arguments)
        if needs_gradient is False or (needs_gradient and not torch.is_grad_enabled()):
            return kernel(*arguments)
        for argument in arguments:
            if isinstance(argument, Tensor):
                check_memory(name, argument)
        _check_takes_values(name, arguments)
        return definition(*arguments)

    return call


def pull_back(function: Callable[..., Any], arguments: Sequence[Any], gradient: Any) -> tuple[Tensor, ...]:
    """The gradients of the tensors among the arguments, in a way that PyTorch can transform again."""
    places = [i for i, argument in enumerate(arguments) if isinstance(argument, Tensor)]

    def of_the_tensors(*tensors: Tensor) -> Any:
        complete = list(arguments)
        for i, tensor in zip(places, tensors, strict=True):
            complete[i] = tensor
        return function(*complete)

    pull: Callable[[Any], tuple[Tensor, ...]] = torch.func.vjp(of_the_tensors, *(arguments[i] for i in places))[1]
    return pull(gradient)


def needs_gradient_of(arguments: Sequence[Any]) -> bool | None:
    """Whether one of the tensors requires a gradient; None if the memory of one does not say all there is to know."""
    needed = False
    try:
        for argument in arguments:
            if type(argument) in _PLAIN:
                # Where there is no memory, the address is that of the offset from nowhere.
                if argument.is_neg() or argument.data_ptr() == argument.storage_offset() * argument.itemsize:
                    return None
                needed |= argument.requires_grad
            elif isinstance(argument, Tensor):
                return None
    except RuntimeError:  # it has no storage
        return None
    return needed


def _no_second_derivative(name: str) -> Callable[..., Any]:
    def refuse(ctx: Any, *gradients: Any) -> None:
        raise NotImplementedError(f"{name}: this backend has no second derivatives; use backend='reference'")

    return refuse


def check_memory(name: str, tensor: Tensor) -> None:
    """Raise if its values are nowhere to be found: PyTorch might look for them all the same.

    Whether a tensor belongs to a vmap is a private question, because PyTorch has no public one.
    """
    if torch.compiler.is_compiling() or type(tensor) not in _PLAIN:
        return
    if torch._C._functorch.is_batchedtensor(tensor):
        if not transformed():
            raise RuntimeError(
                f"{name}: a tensor was used outside of its vmap; return it from the function under vmap instead"
            )
    elif _was_freed(tensor):
        raise RuntimeError(f"{name}: a tensor of shape {tuple(tensor.shape)} has no memory, its storage was freed")


def _check_takes_values(name: str, arguments: Sequence[Any]) -> None:
    """Raise if PyTorch cannot write into the first, the state, what comes of the others; its own words tell of bugs.

    Asked in private: functional tensors have no public sign, nor have zeros without memory.
    """
    state, *others = (argument for argument in arguments if isinstance(argument, Tensor))
    if state._is_zerotensor():
        raise ValueError(f"{name}: state has no memory of its own, but it is overwritten; clone it first")
    if not torch._is_functional_tensor(state) and any(map(torch._is_functional_tensor, others)):
        raise TypeError(f"{name}: state is overwritten, so it must be a functional tensor like the other arguments")


def _was_freed(tensor: Tensor) -> bool:
    """Asked in private: a tensor without storage, or of zeros without memory, has no public sign, and is in order."""
    has_values = torch._C._has_storage(tensor) and tensor.numel() > 0 and not tensor._is_zerotensor()
    return has_values and tensor.untyped_storage().nbytes() == 0


def _check_no_tangent(name: str, tensor: Tensor) -> None:
    """Raise if it has one: an exported program has not gone through `call`, and the kernel would drop it."""
    if forward_mode() and forward_ad.unpack_dual(tensor).tangent is not None:
        raise NotImplementedError(f"{name}: inside an exported program, forward-mode derivatives need torch.func.jvp")


def observed() -> bool:
    """Whether something wants to see each operator: a profiler, or what `watched` asks for."""
    return watched() or torch._C._autograd._profiler_enabled()


def watched() -> bool:
    """Whether something reads, replaces or transforms each operator: a tracer, a mode, a function transform.

    Asked in private: PyTorch has no public question for any but the first two, and the second takes more calls.
    """
    return (
        torch.compiler.is_compiling()
        or torch._C._is_tracing()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._len_torch_function_stack() > 0
        or transformed()
    )
