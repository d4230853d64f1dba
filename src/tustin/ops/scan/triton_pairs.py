"""The discretizations of two samples for GPUs: they also weigh v⁻ = B⁻·u⁻, the input of the token before.

They are what triton_discretizations.py says, with these additions:

    token(Δ, u, P, λ)      λ is ½ unless it is given, and only where the rule has one
    step(…, P, v⁻)         keeps the weight of v⁻ second, after α − 1
    adjoint(…, P, v⁻)      `product` is the gradient of v = B·u as far as this token knows; the kernel adds what the
                           token after it says. Where the rule has a λ, d_λ = Δ·Σ_n of a sixth result.
"""

from __future__ import annotations

from math import log

import triton
import triton.language as tl

from .triton_elementary import growth_from, near_zero, reciprocal

_PER_LN2 = tl.constexpr(1 / log(2))

# ── true_foh: with φ of z, the weights are Δ·φ2 and Δ·(φ1 − φ2) ──────────────────────────────────────────────────────
#   d(Δφ2)/dΔ = φ1 − φ2        d(Δφ1 − Δφ2)/dΔ = e^z − (φ1 − φ2)        φ2' = φ2 − 2φ3        (φ1 − φ2)' = φ1 − φ2 − φ2'
# Near z = 0 the φ are known. Far from it φ2 = (φ1 − 1)/z and φ1 − φ2 = (e^z − φ1)/z, and so on for the derivatives.


@triton.jit
def true_foh_weights(A, P: tl.constexpr):
    inverse = reciprocal(tl.where(tl.abs(A) < 1e-7, -1e-7, A))  # finite when squared; a smaller A is always near zero
    return A, A * _PER_LN2, inverse


@triton.jit
def true_foh_token(delta, u, P: tl.constexpr):
    """With 1/Δ; a step so short that it has none is always near zero."""
    return u, 1.0, 0.0, delta, reciprocal(tl.where(tl.abs(delta) > 1e-10, delta, 1.0))


@triton.jit
def true_foh_step(token, weights, h, B, P: tl.constexpr, past):
    t, per_z = token[3] * weights[1], token[4] * weights[2]
    near, phi = near_zero(t, 3)
    growth = growth_from(t, near, phi)
    phi1, near_phi2 = growth * per_z, phi[2] * (_PER_LN2 * _PER_LN2)
    phi2 = tl.where(near, near_phi2, (phi1 - 1) * per_z)
    rest = tl.where(near, phi[1] * _PER_LN2 - near_phi2, (tl.exp2(t) - phi1) * per_z)  # φ1 − φ2
    before = token[3] * rest
    return growth * h + (token[3] * phi2 * (token[0] * B) + (before * past + h)), (growth, before, phi2, rest)


@triton.jit
def true_foh_adjoint(token, weights, kept, h, after, B, d, P: tl.constexpr, past):
    delta, t, per_z = token[3], token[3] * weights[1], token[4] * weights[2]
    growth, _, phi2, rest = kept
    near, phi = near_zero(t, 3)
    alpha, v = tl.exp2(t), token[0] * B
    near_slope = phi[2] * (_PER_LN2 * _PER_LN2) - phi[3] * (2 * _PER_LN2 * _PER_LN2 * _PER_LN2)
    slope = tl.where(near, near_slope, (rest - phi2) * per_z)
    rest_slope = tl.where(near, rest - slope, (alpha - 2 * rest) * per_z)
    before = growth * d + d
    rate = before * h
    by_A = delta * (delta * (d * (v * slope + past * rest_slope)) + rate)
    return before, by_A, rate * weights[0] + d * (v * rest + past * (alpha - rest)), None, d * (delta * phi2)


# ── true_bil: bil, whose input is the mean of two ────────────────────────────────────────────────────────────────────


@triton.jit
def true_bil_token(delta, u, P: tl.constexpr):
    return u, 1.0, 0.0, delta, delta * 0.5


@triton.jit
def true_bil_step(token, weights, h, B, P: tl.constexpr, past):
    z = token[3] * weights[0]
    rho = reciprocal(1 - z * 0.5)
    return rho * (z * h + token[4] * (token[0] * B + past)) + h, (z * rho, rho * token[4], rho)


@triton.jit
def true_bil_adjoint(token, weights, kept, h, after, B, d, P: tl.constexpr, past):
    d_rho = d * kept[2]
    d_z = d_rho * ((h + after) * 0.5)
    along = d_z * weights[0] + d_rho * ((token[0] * B + past) * 0.5)
    return d_rho * (token[3] * weights[0]) + d, d_z * token[3], along, None, d * kept[1]


# ── exptrap: h⁺ = e^z·g + λΔ·v with g = h + (1 − λ)Δ·v⁻; where λ is 1 that is `mamba`, to the bit ─────────────────────


@triton.jit
def exptrap_token(delta, u, P: tl.constexpr, mix=0.5):
    weight = delta * mix
    return u, 1.0, 0.0, delta, weight * u, delta * (1 - mix), weight, mix


@triton.jit
def exptrap_step(token, weights, h, B, P: tl.constexpr, past):
    t = token[3] * weights[1]
    near, phi = near_zero(t, 1)
    growth = growth_from(t, near, phi)
    g = token[5] * past + h
    return growth * g + (token[4] * B + g), (growth, token[5] * growth + token[5])


@triton.jit
def exptrap_adjoint(token, weights, kept, h, after, B, d, P: tl.constexpr, past):
    before = kept[0] * d + d
    d_z = before * (token[5] * past + h)
    d_past = before * past
    by_mix = d * (token[0] * B) - d_past
    along = d_z * weights[0] + (by_mix * token[7] + d_past)
    return before, d_z * token[3], along, None, d * token[6], by_mix
