"""The discretizations for GPUs: jit functions of one step, which the kernels take as compile-time constants.

A rule is a pair of functions of Δ, A and 1/A, elementwise:

    step:    α − 1, β
    slopes:  α − 1, dα/dz, β, dβ/dA at fixed Δ, dβ/dΔ at fixed A        (docs/math.md derives them)

α − 1 and not α, because a state that hardly decays knows its decay from the digits that α would round away. All of it
is plain multiplications and additions in float32: no library function, so the same digits on every device.
A is never zero: the kernels replace what is as good as zero by something that still has an inverse.
"""

from __future__ import annotations

from math import factorial, log
from typing import Any, NamedTuple

import triton
import triton.language as tl

# ── e^z and the φ-functions ──────────────────────────────────────────────────────────────────────────────────────────

_LN2 = tl.constexpr(log(2))
_ROUND = tl.constexpr(1.5 * 2**23)  # adding it rounds to an integer, and leaves that in the lowest bits
_LOWEST, _HIGHEST = tl.constexpr(-87.0), tl.constexpr(86.0)  # e^z beyond is as good as 0, or as infinite
_INVERSE_FACTORIAL = tl.constexpr(tuple(1 / factorial(j) for j in range(6)))
_SERIES = tl.constexpr(  # coefficients, highest power first
    (
        (  # log(1 + x)/x on 0 ≤ x ≤ 1, to 5e-9
            *(-0.003176057018, 0.01954252726, -0.05637361283, 0.105436238, -0.1526966707),
            *(0.1966327426, -0.2495161626, 0.333297105, -0.4999989265, 0.9999999947),
        ),
        # φ_2 on |r| ≤ ln2/2, then φ_3, φ_4, φ_5 on |r| ≤ 2·ln2, to 1.3e-7
        (0.001390128468, 0.008363140379, 0.04166685335, 0.1666657732, 0.4999999955),
        (
            *(2.795647129e-07, 2.852983715e-06, 2.480564187e-05, 0.00019829642),
            *(0.001388879451, 0.008333377465, 0.04166666957, 0.1666666641),
        ),
        (
            *(2.542239226e-08, 2.836797855e-07, 2.75583166e-06, 2.479186537e-05),
            *(0.0001984121734, 0.001388892599, 0.00833333351, 0.04166666645),
        ),
        (
            *(2.541295097e-08, 2.826656875e-07, 2.755737952e-06, 2.47947769e-05),
            *(0.0001984124434, 0.001388890514, 0.008333333374),
        ),
    )
)


@triton.jit
def _polynomial(x, COEFFICIENTS: tl.constexpr):
    total = x * COEFFICIENTS[0] + COEFFICIENTS[1]
    for i in tl.static_range(2, len(COEFFICIENTS)):
        total = total * x + COEFFICIENTS[i]
    return total


@triton.jit
def _reduced(z, TOP: tl.constexpr):
    """2^{wk}, r and (φ_1(r), …, φ_TOP(r)) for TOP of 2 or more, where z = k·w·ln2 + r, and r is z itself if k = 0.

    w is 1, and 4 for the higher φ: their recurrence upwards must not begin near zero.
    """
    w: tl.constexpr = 1 if TOP == 2 else 4
    inside = tl.clamp(z, _LOWEST, _HIGHEST, propagate_nan=tl.PropagateNan.ALL)
    rounded = inside * (1 / (w * _LN2)) + _ROUND
    k = rounded - _ROUND
    r = inside - k * (w * _LN2)
    phi = (_polynomial(r, _SERIES[TOP - 1]),)
    for j in tl.static_range(TOP - 1, 0, -1):
        phi = (phi[0] * r + _INVERSE_FACTORIAL[j],) + phi  # noqa: RUF005, Triton knows no star
    exponent = (rounded.to(tl.int32, bitcast=True) << (23 if w == 1 else 25)) + (127 << 23)
    return exponent.to(tl.float32, bitcast=True), r, phi


@triton.jit
def _exponential(z, TOP: tl.constexpr):
    """e^z − 1; whether z is near zero; and if so, (φ_1(z), …, φ_TOP(z))."""
    s, r, phi = _reduced(z, TOP)
    return s * (r * phi[0]) + (s - 1), s == 1, phi


@triton.jit
def softplus(x):
    """log(1 + e^x), good to the last digits also where it is small; above 20 it is x, as in PyTorch."""
    s, r, phi = _reduced(-tl.abs(x), 2)
    e = s * (r * phi[0]) + s
    positive = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
    return tl.where(x > 20, x, positive + e * _polynomial(e, _SERIES[0]))


# ── the rules with α = e^z ───────────────────────────────────────────────────────────────────────────────────────────


@triton.jit
def _mamba_step(delta, A, inverse_A):
    growth, _, _ = _exponential(delta * A, 2)
    return growth, delta


@triton.jit
def _mamba_slopes(delta, A, inverse_A):
    growth, _, _ = _exponential(delta * A, 2)
    return growth, growth + 1, delta, 0.0, 1.0


# β = Σ_j p_j x_j with x_j = Δ^j φ_j(z), where A·x_{j+1} = x_j − Δ^j/j!. Near zero that difference cancels, but there
# the φ are known. P is (p_1, p_2, …), as long as the rule is.
#   dx_j/dΔ = x_{j−1}        dx_j/dA = Δ·x_j − j·x_{j+1} (near zero) = (Δ·x_{j−1} − j·x_j)/A (far from it)


@triton.jit
def _ladder(delta, inverse_A, growth, near, phi, LENGTH: tl.constexpr):
    """(e^z, x_1, …, x_LENGTH)."""
    x = (growth + 1, growth * inverse_A)
    power = delta
    for j in tl.static_range(1, LENGTH):
        far = (x[j] - power * _INVERSE_FACTORIAL[j]) * inverse_A
        power *= delta
        x += (tl.where(near, power * phi[j], far),)
    return x


@triton.jit
def _weighted(P: tl.constexpr, x, FIRST: tl.constexpr):
    """Σ_j p_j x_{j+FIRST−1}, without the terms that the rule does not have."""
    total = x[FIRST] * P[0] if P[0] != 0 else x[FIRST + 1] * P[1]
    for j in tl.static_range(1 if P[0] != 0 else 2, len(P)):
        total += x[FIRST + j] * P[j]
    return total


@triton.jit
def _hold_step(delta, A, inverse_A, P: tl.constexpr):
    growth, near, phi = _exponential(delta * A, 2 if len(P) < 2 else len(P))
    return growth, _weighted(P, _ladder(delta, inverse_A, growth, near, phi, len(P)), 1)


@triton.jit
def _hold_slopes(delta, A, inverse_A, P: tl.constexpr, JP: tl.constexpr):
    """JP is (1·p_1, 2·p_2, …)."""
    growth, near, phi = _exponential(delta * A, len(P) + 1)
    x = _ladder(delta, inverse_A, growth, near, phi, len(P))
    beta, beta_delta = _weighted(P, x, 1), _weighted(P, x, 0)
    power = delta * delta
    for _ in tl.static_range(1, len(P)):
        power *= delta
    by_A_far = (delta * beta_delta - _weighted(JP, x, 1)) * inverse_A
    x += (power * phi[len(P)],)
    by_A_near = delta * beta - _weighted(JP, x, 2)
    return growth, growth + 1, beta, tl.where(near, by_A_near, by_A_far), beta_delta


@triton.jit
def _zoh_step(delta, A, inverse_A):
    return _hold_step(delta, A, inverse_A, (1.0,))


@triton.jit
def _zoh_slopes(delta, A, inverse_A):
    return _hold_slopes(delta, A, inverse_A, (1.0,), (1.0,))


@triton.jit
def _foh_step(delta, A, inverse_A):
    return _hold_step(delta, A, inverse_A, (0.0, 1.0))


@triton.jit
def _foh_slopes(delta, A, inverse_A):
    return _hold_slopes(delta, A, inverse_A, (0.0, 1.0), (0.0, 2.0))


@triton.jit
def _pol_step(delta, A, inverse_A):
    return _hold_step(delta, A, inverse_A, (1.0, 0.5))


@triton.jit
def _pol_slopes(delta, A, inverse_A):
    return _hold_slopes(delta, A, inverse_A, (1.0, 0.5), (1.0, 1.0))


@triton.jit
def _hoh_step(delta, A, inverse_A):
    return _hold_step(delta, A, inverse_A, (1.0, 1.0, 0.5))


@triton.jit
def _hoh_slopes(delta, A, inverse_A):
    return _hold_slopes(delta, A, inverse_A, (1.0, 1.0, 0.5), (1.0, 2.0, 1.5))


@triton.jit
def _hoh3_step(delta, A, inverse_A):
    return _hold_step(delta, A, inverse_A, (1.0, 1.0, 0.5, 1 / 6))


@triton.jit
def _hoh3_slopes(delta, A, inverse_A):
    return _hold_slopes(delta, A, inverse_A, (1.0, 1.0, 0.5, 1 / 6), (1.0, 2.0, 1.5, 2 / 3))


# ── the rational and polynomial rules ────────────────────────────────────────────────────────────────────────────────


@triton.jit
def _bil_step(delta, A, inverse_A):
    """With ρ = 1/(1 − z/2):  α = 1 + zρ,  β = Δρ."""
    z = delta * A
    rho = 1 / (1 - z * 0.5)
    return z * rho, delta * rho


@triton.jit
def _bil_slopes(delta, A, inverse_A):
    """dα/dz = dβ/dΔ = ρ²."""
    z = delta * A
    rho = 1 / (1 - z * 0.5)
    slope = rho * rho
    return z * rho, slope, delta * rho, (delta * delta * 0.5) * slope, slope


@triton.jit
def _rk4_b(z):
    """α = 1 + z·b and β = Δ·b."""
    return 1 + z * (1 / 2 + z * (1 / 6 + z * (1 / 24)))


@triton.jit
def _rk4_raw_step(delta, A, inverse_A):
    z = delta * A
    b = _rk4_b(z)
    return z * b, delta * b


@triton.jit
def _rk4_raw_slopes(delta, A, inverse_A):
    """dα/dz = dβ/dΔ."""
    z = delta * A
    b, b_z = _rk4_b(z), 1 / 2 + z * (1 / 3 + z * (1 / 8))
    slope = 1 + z * (1 + z * (1 / 2 + z * (1 / 6)))
    return z * b, slope, delta * b, delta * delta * b_z, slope


_Z_STAR = tl.constexpr(-1.5960716379833216)


@triton.jit
def _rk4_step(delta, A, inverse_A):
    """Beyond z* the step is limited to z*/A."""
    beyond = delta * A < _Z_STAR
    z = tl.where(beyond, _Z_STAR, delta * A)
    b = _rk4_b(z)
    return z * b, tl.where(beyond, _Z_STAR * inverse_A, delta) * b


@triton.jit
def _rk4_slopes(delta, A, inverse_A):
    """Beyond z* α is constant, and β = b(z*)·z*/A depends on A alone."""
    beyond = delta * A < _Z_STAR
    _, slope, _, by_A, _ = _rk4_raw_slopes(delta, A, inverse_A)
    growth, beta = _rk4_step(delta, A, inverse_A)
    slope = tl.where(beyond, 0.0, slope)
    return growth, slope, beta, tl.where(beyond, -beta * inverse_A, by_A), slope


# ── by name ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Functions(NamedTuple):
    """A rule as the kernels take it."""

    step: Any
    slopes: Any


DISCRETIZATIONS = {
    "mamba": Functions(_mamba_step, _mamba_slopes),
    "zoh": Functions(_zoh_step, _zoh_slopes),
    "foh": Functions(_foh_step, _foh_slopes),
    "bil": Functions(_bil_step, _bil_slopes),
    "pol": Functions(_pol_step, _pol_slopes),
    "hoh": Functions(_hoh_step, _hoh_slopes),
    "hoh3": Functions(_hoh3_step, _hoh3_slopes),
    "rk4": Functions(_rk4_step, _rk4_slopes),
    "rk4_raw": Functions(_rk4_raw_step, _rk4_raw_slopes),
}
"""Every rule that is compiled into the kernels; a test compares the names with the registry."""
