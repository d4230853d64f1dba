"""The scan of one token, in place: what a model that writes text does for each token and layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...discretize import Discretization, get_discretization
from ...discretize.apply import check_mix
from ..checks import check_flags, check_overwritable, check_tensor, misshapen, real_dtype
from ..dispatch import choose, declare, kernels
from ..operators import register_in_place
from ..scan import BACKENDS, selective_scan

_OPERATOR = "selective_state_update"
_PACKAGE = __name__.rpartition(".")[0]
_NAMES = ("state", "u", "delta", "A", "B", "C", "D", "z", "delta_bias", "mix")
_OPTIONAL = frozenset(("D", "z", "delta_bias", "mix"))

declare(_OPERATOR, *BACKENDS.values(), warns=lambda device: True)


def selective_state_update(
    state: Tensor,
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
    *,
    discretization: str | Discretization = "mamba",
    backend: str = "auto",
    mix: Tensor | float | None = None,
) -> Tensor:
    """Advance the state by one token, in place, and return the output of that token.

        Δ = softplus(delta + delta_bias)                       (bias and softplus are optional)
        state ← α(Δ A)·state + β(Δ, Δ A)·B u                   α and β are the rule's
        out = (C·state + D u) · silu(z)

    This is `selective_scan` of one token with its state written back. So a scan of some tokens followed by updates
    equals the scan of all tokens. On the CPU both give the same bits if the state is float32 and the rule reads one
    sample. A rule of two samples reads B u of the previous token from the state, where it is rounded.

    Args:
        state: The state, (batch, D, N); for a rule of p > 1 input samples (batch, D, N, p), as `selective_scan` returns
            it. It is overwritten, so it must not share memory with the other arguments. Any dtype and strides are
            allowed; contiguous float32 is fastest.
        u: Input, (batch, D).
        delta: Step sizes, (batch, D).
        A: Diagonal of the state matrix, (D, N), real.
        B: Input matrix, (batch, N), or grouped (batch, G, N) with G dividing D.
        C: Output matrix, in either of the same two forms.
        D: Weight of the skip connection, (D,).
        z: Gate, (batch, D).
        delta_bias: Added to delta, (D,).
        delta_softplus: Pass delta through softplus, after the bias.
        discretization: Name of a registered discretization, or a `Discretization`.
        backend: "auto", "native" (CPU), "triton" (GPU) or "reference".
        mix: λ of a rule that has one, (batch, D) or a number; ½ if not given.

    Returns:
        The output, (batch, D) in the dtype of u. Inside, everything is float32, or float64 if an argument is.

    If a gradient is needed, and under the transforms of `torch.func`, `selective_scan` computes the result, and the
    state is copied.
    """
    rule = get_discretization(discretization)
    check_mix(_OPERATOR, rule, mix)
    if isinstance(mix, int | float):
        mix = u.new_tensor(mix, dtype=real_dtype(state, u, delta, A, B, C, D, z, delta_bias))
    if isinstance(mix, Tensor) and mix.ndim == 0:
        mix = mix.expand(u.shape)
    tensors = (state, u, delta, A, B, C, D, z, delta_bias, mix)
    _check(tensors, rule)
    check_flags(_OPERATOR, delta_softplus=delta_softplus)
    if choose(_OPERATOR, backend, u.device, rule, real_dtype(*tensors)) == "reference":
        return _by_scan(*tensors, delta_softplus, rule, "reference")
    out: Tensor = _update(*tensors, delta_softplus, rule.name)
    return out


def _by_scan(state: Tensor, *arguments: Any) -> Tensor:
    """The definition; the scan may keep its initial state for the gradient, so it gets a copy."""
    u, delta, A, B, C, D, z, delta_bias, mix, delta_softplus, rule, *backend = arguments
    out, last_state = selective_scan(
        u.unsqueeze(-1),
        delta.unsqueeze(-1),
        A,
        B.unsqueeze(-1),
        C.unsqueeze(-1),
        D,
        None if z is None else z.unsqueeze(-1),
        delta_bias,
        delta_softplus,
        return_last_state=True,
        discretization=rule,
        initial_state=state.clone(),
        mix=None if mix is None else mix.unsqueeze(-1),
        backend=backend[0] if backend else "auto",
    )
    state.copy_(last_state)
    return out.squeeze(-1)


def _run(state: Tensor, u: Tensor, *arguments: Any) -> Tensor:
    out: Tensor = kernels(_PACKAGE, u.device).update_state(state, u, *arguments)
    return out


def _fake(state: Tensor, u: Tensor, *arguments: Any) -> Tensor:
    return torch.empty_like(u.unsqueeze(-1)).squeeze(-1)  # as the kernels lay it out


_update = register_in_place(
    _OPERATOR,
    "(Tensor(a!) state, Tensor u, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor? D, Tensor? z, "
    "Tensor? delta_bias, Tensor? mix, bool delta_softplus, str discretization) -> Tensor",
    _run,
    _fake,
    _by_scan,
)


# ── what it insists on ───────────────────────────────────────────────────────────────────────────────────────────────


def _check(tensors: tuple[Tensor | None, ...], rule: Discretization) -> None:
    """Raise unless the tensors fit together; u and A set what the others must be."""
    given = {
        name: check_tensor(_OPERATOR, name, tensor)
        for name, tensor in zip(_NAMES, tensors, strict=True)
        if not (tensor is None and name in _OPTIONAL)
    }
    u, A = given["u"], given["A"]
    if u.ndim != 2:
        raise misshapen(_OPERATOR, "u", u, "(batch, D)")
    batch, D = u.shape
    if A.ndim != 2 or A.shape[0] != D or A.shape[1] == 0:
        raise misshapen(_OPERATOR, "A", A, f"(D, N) with D = {D}, as u has, and N of at least 1")
    N = A.shape[1]
    exact = {
        "state": (batch, D, N) if rule.state_parts == 1 else (batch, D, N, rule.state_parts),
        "delta": (batch, D),
        "z": (batch, D),
        "mix": (batch, D),
        "D": (D,),
        "delta_bias": (D,),
    }
    for name, tensor in given.items():
        if tensor.device != u.device:
            raise ValueError(f"{_OPERATOR}: {name} is on {tensor.device}, but u is on {u.device}")
        if name in exact and tensor.shape != exact[name]:
            raise misshapen(_OPERATOR, name, tensor, str(exact[name]))
    for name in ("B", "C"):
        matrix = given[name]
        grouped = matrix.ndim == 3
        if matrix.shape != ((batch, matrix.shape[1], N) if grouped else (batch, N)):
            raise misshapen(_OPERATOR, name, matrix, f"(batch, N) = {(batch, N)} or (batch, G, N) with G dividing {D}")
        if grouped and (matrix.shape[1] == 0 or D % matrix.shape[1]):
            raise misshapen(_OPERATOR, name, matrix, f"(batch, G, N) with G dividing {D}")
    check_overwritable(_OPERATOR, "state", given["state"])
