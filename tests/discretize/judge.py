"""An independent judge of the coefficients: the formulas of docs/math.md in 40-digit arithmetic.

Shares nothing with the package. The φ-functions are confluent hypergeometric functions, not our series or recurrence:

    φ_k^(m)(z) = m!/(k+m)! · 1F1(m+1; k+m+1; z)

and the derivatives of α and β are high-precision difference quotients of the table's formulas.
"""

from collections.abc import Callable
from functools import cache

from mpmath import MPContext

mp = MPContext()
mp.dps = 40
mpf = type(mp.mpf(0))


@cache
def phi(k: int, z: mpf, m: int = 0) -> mpf:
    """The m-th derivative of φ_k."""
    return mp.factorial(m) / mp.factorial(k + m) * mp.hyp1f1(m + 1, k + m + 1, z)


def _polynomial(z: mpf) -> mpf:
    return 1 + z / 2 + z**2 / 6 + z**3 / 24


def _higher_order_hold(n: int) -> Callable[[mpf, mpf], mpf]:
    return lambda d, z: sum(d ** (i + 1) * phi(i + 1, z) / mp.factorial(i) for i in range(n + 1))


with mp.workdps(120):
    Z_STAR = mp.findroot(lambda z: 1 + z + z**2 / 2 + z**3 / 6, -1.6)
    """Where RK4's α is smallest."""
    Z_LEFT = mp.findroot(_polynomial, -2.8)
    """Where RK4's α = 1 + z·β/Δ comes back to 1, so that β is 0."""

ALPHA: dict[str, Callable[[mpf], mpf]] = {
    **dict.fromkeys(("mamba", "zoh", "foh", "pol", "hoh", "hoh3"), mp.exp),
    "bil": lambda z: (1 + z / 2) / (1 - z / 2),
    "rk4": lambda z: ALPHA["rk4_raw"](max(z, Z_STAR)),
    "rk4_raw": lambda z: 1 + z + z**2 / 2 + z**3 / 6 + z**4 / 24,
}
BETA: dict[str, Callable[[mpf, mpf], mpf]] = {
    "mamba": lambda d, z: d,
    "zoh": lambda d, z: d * phi(1, z),
    "foh": lambda d, z: d**2 * phi(2, z),
    "bil": lambda d, z: d / (1 - z / 2),
    "pol": lambda d, z: d * phi(1, z) + d**2 * phi(2, z) / 2,
    "hoh": _higher_order_hold(2),
    "hoh3": _higher_order_hold(3),
    "rk4": lambda d, z: (d if z >= Z_STAR else d * Z_STAR / z) * _polynomial(max(z, Z_STAR)),
    "rk4_raw": lambda d, z: d * _polynomial(z),
}


@cache
def quantity(discretization: str, name: str, delta: float, z: float) -> float:
    """One coefficient or partial derivative at exactly this (Δ, z), rounded once."""
    alpha, beta, d, z = ALPHA[discretization], BETA[discretization], mp.mpf(delta), mp.mpf(z)
    match name:
        case "α":
            return float(alpha(z))
        case "∂α/∂z":
            return float(mp.diff(alpha, z))
        case "β":
            return float(beta(d, z))
        case "∂β/∂z":
            return float(mp.diff(lambda z: beta(d, z), z))
        case "∂β/∂Δ":
            return float(mp.diff(lambda d: beta(d, z), d))
    raise KeyError(name)
