"""Runge–Kutta 4 with the input held over the step: e^z and φ1 cut off after z⁴ and z³.

A polynomial must leave the unit circle: beyond z ≈ −2.785 the plain rule (`rk4_raw`) grows at every token, and
ViM's own initialisation starts at z ≈ −11. `rk4` limits the step instead: Δ_eff = min(Δ, z*/A), where z* is the
point at which α is smallest. Up to there it is the plain rule; beyond, α stays at α(z*) ≈ 0.27 and a constant
input still settles where it should.
"""

from math import inf

from torch import Tensor

from .base import Coefficients, Discretization

Z_STAR = -1.5960716379833216
"""Where 1 + z + z²/2 + z³/6 = α'(z) vanishes."""


def _raw(delta: Tensor, z: Tensor) -> Coefficients:
    beta = 1 + z / 2 * (1 + z / 3 * (1 + z / 4))
    return 1 + z * beta, (delta * beta,)


def _limited(delta: Tensor, z: Tensor) -> Coefficients:
    beyond = z < Z_STAR
    shrink = (Z_STAR / z.where(beyond, Z_STAR)).where(beyond, 1.0)  # Δ_eff/Δ
    return _raw(delta * shrink, z.where(~beyond, Z_STAR))  # not clamp: at z* itself its gradient is 0


RK4 = Discretization(
    name="rk4",
    coefficients=_limited,
    alpha="1 + z + z²/2 + z³/6 + z⁴/24, step limited to z ≥ −1.596",
    betas=("Δ·(1 + z/2 + z²/6 + z³/24), same limit",),
    order=1,
    held_order=4,
    exact_equilibrium=True,
    stable=(-inf, 0),
    source="paper, RK4; our limiter",
)

RK4_RAW = Discretization(
    name="rk4_raw",
    coefficients=_raw,
    alpha="1 + z + z²/2 + z³/6 + z⁴/24",
    betas=("Δ·(1 + z/2 + z²/6 + z³/24)",),
    order=1,
    held_order=4,
    exact_equilibrium=True,
    stable=(-2.7852935634052816, 0),
    source="paper, RK4",
)
