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


def _parabola(d: mpf, z: mpf, before: mpf, sample: int) -> mpf:
    """∫ e^{A(Δ−s)} ℓ(s) ds, where the parabola ℓ is 1 at one of the samples (s = Δ, 0, −before) and 0 at the others."""
    if not before:  # a line: there is no third sample
        return (d * phi(2, z), d * (phi(1, z) - phi(2, z)), mp.mpf(0))[sample]
    here, *others = [(d, mp.mpf(0), -before)[(sample + i) % 3] for i in range(3)]
    scale = (here - others[0]) * (here - others[1])
    if not scale:
        return mp.mpf(0)  # d = 0: the integral is empty
    moments = [mp.factorial(j) * d ** (j + 1) * phi(j + 1, z) for j in range(3)]  # ∫ e^{A(Δ−s)} s^j ds
    return (moments[2] - sum(others) * moments[1] + others[0] * others[1] * moments[0]) / scale


MIX = mp.mpf(0.3)  # λ of exptrap, exactly the double
RATIO = 2  # Δ_k/Δ_{k−1} of true_hoh

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
    **dict.fromkeys(("true_foh", "exptrap", "true_hoh"), mp.exp),
    "true_bil": lambda z: (1 + z / 2) / (1 - z / 2),
}
BETA: dict[str, Callable[..., mpf]] = {
    "mamba": lambda d, z: d,
    "zoh": lambda d, z: d * phi(1, z),
    "foh": lambda d, z: d**2 * phi(2, z),
    "bil": lambda d, z: d / (1 - z / 2),
    "pol": lambda d, z: d * phi(1, z) + d**2 * phi(2, z) / 2,
    "hoh": _higher_order_hold(2),
    "hoh3": _higher_order_hold(3),
    "rk4": lambda d, z: (d if z >= Z_STAR else d * Z_STAR / z) * _polynomial(max(z, Z_STAR)),
    "rk4_raw": lambda d, z: d * _polynomial(z),
    "true_foh": lambda d, z: d * phi(2, z),
    "true_bil": lambda d, z: d / 2 / (1 - z / 2),
    "exptrap": lambda d, z: MIX * d,
    "true_hoh": lambda d, z, before: _parabola(d, z, before, 0),
}
EARLIER: dict[str, tuple[Callable[..., mpf], ...]] = {
    "true_foh": (lambda d, z: d * (phi(1, z) - phi(2, z)),),
    "true_bil": (BETA["true_bil"],),
    "exptrap": (lambda d, z: (1 - MIX) * d * mp.exp(z),),
    "true_hoh": (
        lambda d, z, before: _parabola(d, z, before, 1),
        lambda d, z, before: _parabola(d, z, before, 2),
    ),
}
"""The weights of the samples before the newest."""


@cache
def quantity(discretization: str, name: str, delta: float, z: float) -> float:
    """One coefficient or partial derivative at exactly this (Δ, z), rounded once."""
    alpha, d, z = ALPHA[discretization], mp.mpf(delta), mp.mpf(z)
    sample = next((int(digit) for digit in name if digit.isdigit()), 0)
    betas = (BETA[discretization], *EARLIER.get(discretization, ()))
    steps = (d / RATIO,) if discretization == "true_hoh" else ()
    beta = lambda d, z: betas[sample](d, z, *steps)  # noqa: E731
    match name.replace(f"β{sample}", "β"):
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
