"""e^z, the φ-functions, 1/x and softplus for GPUs.

Two instructions of the GPU are approximate: 2^x and 1/x, of its special units. Their errors in units in the last place:
by NVIDIA's PTX ISA at most two for ex2.approx.f32, from the correctly rounded result, and one for rcp.approx.f32; by
AMD's ISA one for v_exp_f32, and less than one for v_rcp_f32. So

    e^z is good to 3e-7 of itself, but its distance from 1 is not, where z is small: that comes from a polynomial;
    1/x is corrected by one step of Newton's method.

All else is multiplications and additions in float32. The tests make the interpreter's 2^x, e^x and division as wrong as
that, with random signs, and hold the rules to the same tolerances.
"""

from __future__ import annotations

from math import factorial, log

import triton
import triton.language as tl
from triton.language.target_info import is_cuda, is_hip

_LN2, _PER_LN2 = tl.constexpr(log(2)), tl.constexpr(1 / log(2))
_LIMITS = tl.constexpr((0.0, *(limit / log(2) for limit in (0.3, 0.4, 1.0, 0.95, 1.2))))
_SERIES = tl.constexpr(  # coefficients, highest power first
    (
        (  # log(1 + x)/x on 0 ≤ x ≤ 1, to 3e-8
            *(0.005232607331, -0.02950483415, 0.07822518728, -0.1366317041, 0.1910596538),
            *(-0.2484296977, 0.3331909496, -0.4999949304, 0.9999999699),
        ),
        # ln2^j φ_j(ln2·t), j from 1, for t up to the limit: to 2e-7 … 7e-7, the last two, which count less, to 5e-6
        (0.001333354852, 0.009654186088, 0.05550461029, 0.2402248242, 0.693147165),
        (0.0001542181597, 0.001339709957, 0.009618205688, 0.05550358091, 0.2402265019),
        (1.332533702e-06, 1.55723607e-05, 0.0001540470149, 0.001333107441, 0.009618116109, 0.05550413698),
        (1.331658753e-06, 1.549331632e-05, 0.0001540397759, 0.00133324295, 0.009618126166),
        (1.029053887e-07, 1.348222198e-06, 1.525313626e-05, 0.0001540153373, 0.001333355182),
    )
)
_PHI_AT_ZERO = tl.constexpr(tuple(log(2) ** j / factorial(j) for j in range(6)))


@triton.jit
def _polynomial(x, COEFFICIENTS: tl.constexpr):
    total = x * COEFFICIENTS[0] + COEFFICIENTS[1]
    for i in tl.static_range(2, len(COEFFICIENTS)):
        total = total * x + COEFFICIENTS[i]
    return total


@triton.jit
def near_zero(t, TOP: tl.constexpr):
    """Whether z = ln2·t is near zero; and if so, ln2^j φ_j(z) for j up to TOP. They begin at j = 1."""
    phi = (_polynomial(t, _SERIES[TOP]),)
    for j in tl.static_range(TOP - 1, 0, -1):
        phi = (phi[0] * t + _PHI_AT_ZERO[j],) + phi  # noqa: RUF005, Triton knows no star
    return tl.abs(t) < _LIMITS[TOP], (None,) + phi  # noqa: RUF005


@triton.jit
def growth_from(t, near, phi):
    """e^z − 1, with the help of what `near_zero` found."""
    return tl.where(near, phi[1] * t, tl.exp2(t) - 1)


@triton.jit
def reciprocal(x):
    """1/x, to the last digit but one, for a normal number x."""
    if is_cuda():
        y = tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=r,r", [x], tl.float32, True, 1)
    elif is_hip():
        y = tl.inline_asm_elementwise("v_rcp_f32 $0, $1", "=v,v", [x], tl.float32, True, 1)
    else:
        y = 1 / x
    return y * (1 - x * y) + y


@triton.jit
def softplus(x):
    """log(1 + e^x), good to the last digits also where it is small; above 20 it is x, as in PyTorch."""
    e = tl.exp2(tl.abs(x) * -_PER_LN2)
    positive = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
    return tl.where(x > 20, x, positive + e * _polynomial(e, _SERIES[0]))
