"""HOW the recurrence runs: one signature and one meaning, whichever backend computes it."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ...discretize import BUILT_IN, DISCRETIZATIONS, FUSED, Discretization, get_discretization
from ..checks import check_flags
from ..dispatch import NATIVE, REFERENCE, TRITON, choose, declare
from . import native, op, reference
from .arguments import Options, Tensors, check_arguments, check_values, compute_dtype, mix_per_token

__all__ = ["BACKENDS", "check_values", "selective_scan"]


def _native_refuses(device: torch.device, rule: Discretization, dtype: torch.dtype = torch.float32) -> str | None:
    return NATIVE.refuses(device) or _lacks(native.discretization_names(), rule)


def _triton_refuses(device: torch.device, rule: Discretization, dtype: torch.dtype = torch.float32) -> str | None:
    if reason := TRITON.refuses(device):
        return reason
    from .triton_discretizations import DISCRETIZATIONS  # here, because importing Triton takes a second

    return _lacks(tuple(DISCRETIZATIONS), rule) or ("it has no float64" if dtype == torch.float64 else None)


def _lacks(names: tuple[str, ...], rule: Discretization) -> str | None:
    """Why fused code that has the rules of these names does not have this one, or None if it does."""
    if rule.name not in names:
        return f"discretization {rule.name!r} is not one of those compiled into it ({', '.join(names)})"
    return None if rule in BUILT_IN else f"discretization {rule.name!r} is not the built-in one of that name"


def _translated(rule: Discretization) -> bool:
    """Whether this call is being exported to ONNX, where the operator is translated, whatever can run it here."""
    return torch.onnx.is_in_onnx_export() and DISCRETIZATIONS.get(rule.name) is rule


_FUSED = f"every built-in discretization but {', '.join(rule.name for rule in BUILT_IN if rule not in FUSED)}"

BACKENDS = declare(
    "selective_scan",
    replace(NATIVE, description=f"fused C++ for the CPU; {_FUSED}", refuses=_native_refuses),
    replace(
        TRITON,
        description=f"fused Triton kernels for GPUs; {_FUSED}, in float32",
        refuses=_triton_refuses,
    ),
    replace(REFERENCE, description="plain PyTorch, sequential; any device, dtype and discretization"),
    warns=lambda device: True,
)
"""What can compute `selective_scan`, by name."""


def selective_scan(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
    *,
    discretization: str | Discretization = "mamba",
    reverse: bool = False,
    backend: str = "auto",
    initial_state: Tensor | None = None,
    mix: Tensor | float | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Run the state-space recurrence along the last dimension, with the discretization of your choice.

        Δ = softplus(delta + delta_bias)                       (bias and softplus are optional)
        h_k = α(Δ_k A)·h_{k−1} + β(Δ_k, Δ_k A)·B_k u_k         α and β of the rule; one β for each sample it reads
        out_k = (C_k·h_k + D u_k) · silu(z_k)

    The positional arguments, their shapes and the default rule are those of Mamba's `selective_scan_fn`.

    Args:
        u: Input, (batch, D, L).
        delta: Step sizes, (batch, D, L).
        A: Diagonal of the state matrix, (D, N), real.
        B: Input matrix: constant (D, N), per token (batch, N, L), or grouped (batch, G, N, L) with G dividing D.
        C: Output matrix, in any of the same three forms.
        D: Weight of the skip connection, (D,).
        z: Gate, (batch, D, L).
        delta_bias: Added to delta, (D,).
        delta_softplus: Pass delta through softplus, after the bias.
        return_last_state: Also return the state after the last token.
        discretization: Name of a registered discretization, or a `Discretization`.
        reverse: Scan from the last token to the first; the "last" state is then the one at token 0.
        backend: "auto", or one of `BACKENDS` by name. Under the transforms of `torch.func` and in forward-mode
            differentiation the reference runs instead of a fused backend; it is equally exact, but slower.
        initial_state: State before the first token, (batch, D, N); zero if not given. For a rule of p > 1 input
            samples (batch, D, N, p): the state, then the p−1 newest products B u; for `true_hoh` a fourth part is the
            previous step. The last state has the same shape.
        mix: λ between 0 and 1 of a rule that has one (`exptrap`): (batch, D, L), or a number; ½ if not given.

    Returns:
        The output, (batch, D, L) in the dtype of u; with `return_last_state` the pair (output, last state). The state
        and all computation are float32, or float64 if an argument is float64.
    """
    rule = get_discretization(discretization)
    tensors = Tensors(u, delta, A, B, C, D, z, delta_bias, initial_state)
    if mix is not None:
        tensors = tensors._replace(mix=mix_per_token(mix, tensors, rule))
    check_arguments(tensors, rule)
    check_flags("selective_scan", delta_softplus=delta_softplus, return_last_state=return_last_state, reverse=reverse)
    options = Options(delta_softplus, rule.name, reverse)
    dtype = compute_dtype(tensors)
    chosen = choose("selective_scan", backend, u.device, rule, dtype)
    if chosen == "reference" and not (backend == "auto" and _translated(rule)):
        out, last_state = reference.scan(tensors, options, rule, dtype)
    else:
        out, last_state = op.scan(tensors, options, dtype)
    return (out, last_state) if return_last_state else out
