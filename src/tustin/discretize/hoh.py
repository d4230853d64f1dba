"""Higher-order hold of degree n: B̄ = Σ_{i=0..n} A^{−(i+1)} (e^{AΔ} − Σ_{k≤i} (AΔ)^k/k!) / i! · B.

Each summand is Δ^{i+1}·φ_{i+1}(z)/i!. Degree 0 is zero-order hold; `hoh` is degree 2 and `hoh3` degree 3.
"""

from math import factorial, inf

from torch import Tensor

from .base import Coefficients, Discretization
from .phi import phi

_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def higher_order_hold(degree: int, name: str | None = None) -> Discretization:
    """The paper's hold of any degree, ready to `register` or to pass to the scan."""
    if degree < 0:
        raise ValueError(f"higher_order_hold: degree must be 0 or more, got {degree}")

    def coefficients(delta: Tensor, z: Tensor) -> Coefficients:
        beta = delta * phi(1, z)
        for i in range(1, degree + 1):
            beta = beta + delta ** (i + 1) * phi(i + 1, z) / factorial(i)
        return z.exp(), (beta,)

    return Discretization(
        name=name or f"hoh{degree}",
        coefficients=coefficients,
        alpha="e^z",
        betas=(" + ".join(_term(i) for i in range(degree + 1)),),
        order=1,
        held_order=inf if degree == 0 else 1,
        exact_equilibrium=degree == 0,
        stable=(-inf, 0),
        source=f"paper, HOH with n = {degree}",
    )


def _term(i: int) -> str:
    power = str(i + 1).translate(_SUPERSCRIPTS) if i else ""
    divisor = f"/{factorial(i)}" if i > 1 else ""
    return f"Δ{power}·φ{i + 1}(z){divisor}"


HOH = higher_order_hold(2, "hoh")
HOH3 = higher_order_hold(3)
