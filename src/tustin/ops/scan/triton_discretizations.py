"""The discretizations for GPUs: jit functions, which the kernels take as compile-time constants.

A rule is four functions, elementwise, and P, numbers of its own that each of them gets. None knows of memory or loops.

    weights(A)                         what depends on A alone, computed once per program
    token(Δ, u)                        input, per_u, per_delta, and what else is the same for all states of a token
    step(token, weights, h, B)         the state after the token; and (α − 1, and what else the gradient can use)
    adjoint(token, weights, kept, h, after, B, d)
                                       the state's share in the gradients, from that of the state after the token, d:
        before     the gradient of the state before
        d_A        its summand in the gradient of A
        along, push    d_Δ = Σ_n along + per_delta·Σ_n B·push        push is None where along is all
        product        d_u = per_u·Σ_n B·product        d_B = input·product

α − 1 and not α, because a state that hardly decays knows its decay from the digits that α would round away.
docs/math.md derives the derivatives. A is never zero: the kernels replace what is as good as zero by something that
still has an inverse.
"""

from __future__ import annotations

from math import factorial, log
from typing import Any, NamedTuple

import triton
import triton.language as tl

from . import triton_pairs as pairs
from .triton_elementary import growth_from, near_zero, reciprocal

_PER_LN2 = tl.constexpr(1 / log(2))
_POWER_OF_LN2 = tl.constexpr(tuple(log(2) ** j / factorial(j) for j in range(5)))

# ── most rules: Δ, u and B act through z = ΔA and the product Δ·u·B alone ────────────────────────────────────────────


@triton.jit
def _plain_token(delta, u, P: tl.constexpr):
    return delta * u, delta, u


@triton.jit
def _through(token, A, before, d_z, d_product):
    return before, d_z * token[1], d_z * A, d_product, d_product


@triton.jit
def _mamba_weights(A, P: tl.constexpr):
    return A, A * _PER_LN2


@triton.jit
def _mamba_step(token, weights, h, B, P: tl.constexpr):
    t = token[1] * weights[1]
    near, phi = near_zero(t, 1)
    growth = growth_from(t, near, phi)
    return growth * h + (token[0] * B + h), (growth,)


@triton.jit
def _mamba_adjoint(token, weights, kept, h, after, B, d, P: tl.constexpr):
    before = kept[0] * d + d
    return _through(token, weights[0], before, before * h, d)


@triton.jit
def _bil_weights(A, P: tl.constexpr):
    return (A,)


@triton.jit
def _bil_step(token, weights, h, B, P: tl.constexpr):
    """With ρ = 1/(1 − z/2):  α = 1 + zρ,  β = Δρ."""
    z = token[1] * weights[0]
    rho = reciprocal(1 - z * 0.5)
    return rho * (z * h + token[0] * B) + h, (z * rho, rho)


@triton.jit
def _bil_adjoint(token, weights, kept, h, after, B, d, P: tl.constexpr):
    """The rule is the trapezoidal one: z acts on the mean of the states before and after."""
    d_rho = d * kept[1]
    before = d_rho * (token[1] * weights[0]) + d
    return _through(token, weights[0], before, d_rho * ((h + after) * 0.5), d_rho)


# ── Runge-Kutta: with q = A·h + v and the polynomial b(z) = 1 + z/2 + z²/6 + z³/24, after = h + m·q where m = Δ·b ─────


@triton.jit
def _rk4_token(delta, u, P: tl.constexpr):
    return u, 1.0, 0.0, delta


@triton.jit
def _rk4_raw_weights(A, P: tl.constexpr):
    return (A,)


@triton.jit
def _rk4_b(z):
    return 1 + z * (1 / 2 + z * (1 / 6 + z * (1 / 24)))


@triton.jit
def _rk4_raw_step(token, weights, h, B, P: tl.constexpr):
    m = token[3] * _rk4_b(token[3] * weights[0])
    return m * (weights[0] * h + token[0] * B) + h, (m * weights[0], m)


@triton.jit
def _rk4_slopes(z, delta):
    """dm/dΔ = dα/dz and dm/dA."""
    return 1 + z * (1 + z * (1 / 2 + z * (1 / 6))), (1 / 2 + z * (1 / 3 + z * (1 / 8))) * (delta * delta)


@triton.jit
def _rk4_raw_adjoint(token, weights, kept, h, after, B, d, P: tl.constexpr):
    A, m = weights[0], kept[1]
    by_delta, by_A = _rk4_slopes(token[3] * A, token[3])
    d_q, d_m = d * m, d * (A * h + token[0] * B)
    return d_q * A + d, d_m * by_A + d_q * h, d_m * by_delta, None, d_q


_Z_STAR = tl.constexpr(-1.5960716379833216)


@triton.jit
def _rk4_weights(A, P: tl.constexpr):
    """Beyond z* the step is limited to z*/A. As for `zoh`, after = h + (α − 1)·(h + v/A)."""
    return A, 1 / A


@triton.jit
def _rk4_step(token, weights, h, B, P: tl.constexpr):
    z = tl.maximum(token[3] * weights[0], _Z_STAR, propagate_nan=tl.PropagateNan.ALL)
    growth = z * _rk4_b(z)
    return growth * (weights[1] * (token[0] * B) + h) + h, (growth, growth * weights[1])


@triton.jit
def _rk4_adjoint(token, weights, kept, h, after, B, d, P: tl.constexpr):
    """Beyond z* m = b(z*)·z*/A depends on A alone."""
    A, inverse, m = weights[0], weights[1], kept[1]
    beyond = token[3] * A < _Z_STAR
    by_delta, by_A = _rk4_slopes(token[3] * A, token[3])
    by_A = tl.where(beyond, -m * inverse, by_A)
    d_q, d_m = d * m, d * (A * h + token[0] * B)
    return d_q * A + d, d_m * by_A + d_q * h, tl.where(beyond, 0.0, d_m * by_delta), None, d_q


# ── the holds: α = e^z and β = Σ_j p_j x_j with x_j = Δ^j φ_j(z) ─────────────────────────────────────────────────────
#   A·x_{j+1} = x_j − Δ^j/j!        dx_j/dΔ = x_{j−1}        dx_j/dA = Δ·x_j − j·x_{j+1} = (Δ·x_{j−1} − j·x_j)/A
# Put the ladder into β, and it is linear in e^z − 1 and the powers of Δ, with weights of A alone. Where |z| is small
# that would cancel; there the φ are known, φ_j with the factor ln2^j. P is (p_1, p_2, …), as long as the rule is.


@triton.jit
def _zoh_weights(A, P: tl.constexpr):
    return A, A * _PER_LN2, 1 / A


@triton.jit
def _zoh_token(delta, u, P: tl.constexpr):
    return u, 1.0, u, delta, delta * delta * (_PER_LN2 * _PER_LN2)


@triton.jit
def _zoh_step(token, weights, h, B, P: tl.constexpr):
    """β = (α − 1)/A, so after = h + (α − 1)·(h + v/A). For the gradient dβ/dA."""
    delta, inverse = token[3], weights[2]
    t = delta * weights[1]
    near, phi = near_zero(t, 2)
    growth = growth_from(t, near, phi)
    beta = growth * inverse
    by_A = tl.where(near, delta * beta - phi[2] * token[4], (delta * growth + (delta - beta)) * inverse)
    return growth * (inverse * (token[0] * B) + h) + h, (growth, by_A)


@triton.jit
def _zoh_adjoint(token, weights, kept, h, after, B, d, P: tl.constexpr):
    """dβ/dΔ = α."""
    growth, by_A = kept
    before, v = growth * d + d, token[0] * B
    rate = before * h
    return before, rate * token[3] + (d * v) * by_A, rate * weights[0] + before * v, None, d * (growth * weights[2])


@triton.jit
def _hold_weights(A, P: tl.constexpr):
    """A, A/ln2; b of β = b₀(e^z − 1) − b₁s − b₂s² − b₃s³ with s = Δ/ln2; c of dβ/dA = c₀(e^z − 1) + … likewise."""
    inverse = 1 / tl.where(tl.abs(A) < 1e-7, -1e-7, A)  # its fifth power is finite; a smaller A is always near zero
    x, slope = inverse * P[len(P) - 1], -inverse * inverse * P[len(P) - 1]
    b, c = (x,), (slope,)
    for j in tl.static_range(len(P) - 2, -1, -1):
        slope = inverse * (slope - inverse * (x + P[j]))
        x = inverse * (x + P[j])
        b, c = (x,) + b, (slope,) + c  # noqa: RUF005, Triton knows no star
    scaled_b, scaled_c = (b[0],), (c[0],)
    for j in tl.static_range(1, len(P)):
        scaled_b += (b[j] * _POWER_OF_LN2[j],)
        scaled_c += ((b[0] - c[1] if j == 1 else -c[j]) * _POWER_OF_LN2[j],)
    return (A, A * _PER_LN2), scaled_b, scaled_c


@triton.jit
def _hold_token(delta, u, P: tl.constexpr):
    """After Δ the powers of s = Δ/ln2, from the first on, and the input P(Δ) at the end of the step."""
    s = (None, delta * _PER_LN2)
    at_end = delta * P[1] + P[0]
    for j in tl.static_range(2, len(P) + 2):
        s += (s[j - 1] * s[1],)
        if j < len(P):
            at_end += s[j] * (P[j] * _POWER_OF_LN2[j])
    return u, 1.0, u, delta, s, at_end


@triton.jit
def _near_sum(token, phi, P: tl.constexpr, SHIFT: tl.constexpr):
    """Σ_j p_j x_j where z is near zero, or, with a SHIFT of 1, Σ_j j p_j x_{j+1}."""
    first: tl.constexpr = 1 if P[0] != 0 else 2
    total = phi[first + SHIFT] * (token[4][first + SHIFT] * (P[first - 1] * (first if SHIFT else 1)))
    for j in tl.static_range(first + 1, len(P) + 1):
        total += phi[j + SHIFT] * (token[4][j + SHIFT] * (P[j - 1] * (j if SHIFT else 1)))
    return total


@triton.jit
def _hold_step(token, weights, h, B, P: tl.constexpr):
    t = token[3] * weights[0][1]
    near, phi = near_zero(t, len(P) + 1)
    growth = growth_from(t, near, phi)
    b = weights[1]
    far = growth * b[0]
    for j in tl.static_range(1, len(P)):
        far -= token[4][j] * b[j]
    beta = tl.where(near, _near_sum(token, phi, P, 0), far)
    return growth * h + (beta * (token[0] * B) + h), (growth, beta)


@triton.jit
def _hold_adjoint(token, weights, kept, h, after, B, d, P: tl.constexpr):
    """dβ/dΔ = A·β + P(Δ) and dβ/dA = Δ·β − Σ_j j p_j x_{j+1} near zero; both from the linear form far from it."""
    A, b, c = weights[0][0], weights[1], weights[2]
    delta, s = token[3], token[4]
    near, phi = near_zero(delta * weights[0][1], len(P) + 1)
    growth, beta = kept
    far_delta, far_A = growth * (A * b[0]) + P[0], growth * (delta * b[0] + c[0])
    for j in tl.static_range(1, len(P)):
        if j > 1:
            far_delta -= s[j - 1] * (b[j] * (j * _PER_LN2))
        far_A += s[j] * c[j]
    by_delta = tl.where(near, A * beta + token[5], far_delta)
    by_A = tl.where(near, delta * beta - _near_sum(token, phi, P, 1), far_A)
    before, d_v = growth * d + d, d * (token[0] * B)
    rate = before * h
    return before, rate * delta + d_v * by_A, rate * A + d_v * by_delta, None, d * beta


# ── by name ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Functions(NamedTuple):
    """A rule as the kernels take it."""

    weights: Any
    token: Any
    step: Any
    adjoint: Any
    P: tuple[float, ...] = ()
    taps: int = 1
    """How many samples it weighs; triton_pairs.py says what is different for two."""
    crowded: bool = False
    """Whether its forward pass wants all the registers that a thread can have."""


_HOLD = Functions(_hold_weights, _hold_token, _hold_step, _hold_adjoint)

DISCRETIZATIONS = {
    "mamba": Functions(_mamba_weights, _plain_token, _mamba_step, _mamba_adjoint),
    "zoh": Functions(_zoh_weights, _zoh_token, _zoh_step, _zoh_adjoint),
    "foh": _HOLD._replace(P=(0.0, 1.0)),
    "bil": Functions(_bil_weights, _plain_token, _bil_step, _bil_adjoint),
    "pol": _HOLD._replace(P=(1.0, 1 / 2), crowded=True),
    "hoh": _HOLD._replace(P=(1.0, 1.0, 1 / 2), crowded=True),
    "hoh3": _HOLD._replace(P=(1.0, 1.0, 1 / 2, 1 / 6), crowded=True),
    "rk4": Functions(_rk4_weights, _rk4_token, _rk4_step, _rk4_adjoint),
    "rk4_raw": Functions(_rk4_raw_weights, _rk4_token, _rk4_raw_step, _rk4_raw_adjoint),
    "true_foh": Functions(
        *(pairs.true_foh_weights, pairs.true_foh_token, pairs.true_foh_step, pairs.true_foh_adjoint),
        taps=2,
        crowded=True,
    ),
    "true_bil": Functions(_bil_weights, pairs.true_bil_token, pairs.true_bil_step, pairs.true_bil_adjoint, taps=2),
    "exptrap": Functions(_mamba_weights, pairs.exptrap_token, pairs.exptrap_step, pairs.exptrap_adjoint, taps=2),
}
"""Every rule that is compiled into the kernels: all fused ones. A test compares the names."""
