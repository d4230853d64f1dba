"""The contract of a discretization: what a rule must say about itself, and the check that it is true.

A rule turns the step Δ and z = Δ·A into the weights of one step of the recurrence

    h_k = α(z_k)·h_{k−1} + Σ_j β_j(Δ_k, z_k)·v_{k−j}          v_k = B_k u_k

The paper's rules weigh the current sample only, so there is one β; a rule may weigh as many as it likes. Its weights
may also depend on the steps before, Δ_{k−1} and on, and on a λ between 0 and 1 that the caller gives token by token.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from ..support.names import unknown

Coefficients: TypeAlias = tuple[Tensor, tuple[Tensor, ...]]
"""α and one β per input sample, newest first."""

DISCRETIZATIONS: dict[str, Discretization] = {}
"""Every registered rule by name."""

RATIO = 10.0
"""Up to which ratio of neighbouring steps, in either direction, `largest_weight` is stated."""


@dataclass(frozen=True)
class Discretization:
    """A discretization rule and the facts it declares about itself.

    The facts are data for tables, documentation and tests. `register` refuses a rule if one of its facts is false.
    """

    name: str
    coefficients: Callable[..., Coefficients]
    """(Δ, z) → α, (β_0, β_1, …), elementwise, differentiable, accurate for every z including 0.

    A rule of several `steps` also gets `earlier=(Δ_{k−1}, …)`, newest first, where 0 means that there is no such step;
    one that `mixes` also gets `mix=λ`.
    """
    alpha: str
    """Formula of α, as text."""
    betas: tuple[str, ...]
    """Formula of each β, as text: one per input sample, newest first."""
    order: int
    """Order of convergence as Δ → 0 when the input varies smoothly; 0 means that it does not converge."""
    held_order: float
    """The same when the input really is constant over each step; inf means exact."""
    exact_equilibrium: bool
    """For a constant input, the state settles at the value of the continuous system: α = 1 + z·Σβ/Δ for all z."""
    stable: tuple[float, float]
    """The interval of z on which |α| ≤ 1."""
    source: str
    """Where the rule comes from."""
    steps: int = 1
    """How many steps its weights depend on: the current one, and steps − 1 before it."""
    mixes: bool = False
    """Whether its weights depend on λ, the `mix` of a scan. The other facts are those at λ = ½."""
    largest_weight: float | None = None
    """For a rule of several steps: the largest Σ|β|/Δ for z ≤ 0 and steps whose ratio is at most `RATIO`; else None."""

    @property
    def taps(self) -> int:
        """How many input samples a step reads."""
        return len(self.betas)

    @property
    def state_parts(self) -> int:
        """What a state is made of: h, then the taps − 1 newest v, then the steps − 1 newest Δ."""
        return self.taps + self.steps - 1

    def __call__(
        self, delta: Tensor, z: Tensor, *, earlier: tuple[Tensor, ...] = (), mix: Tensor | float | None = None
    ) -> Coefficients:
        """α and every β in the dtype of z, evaluated in float64 and rounded once.

        The rounding inside a formula would otherwise show: RK4's α loses four bits near its smallest value. A step
        before that is not given is as long as this one, and a λ that is not given is ½.
        """
        more: dict[str, Any] = {}
        if self.steps > 1:
            given = [step.double() for step in earlier]
            more["earlier"] = (*given, *[delta.double()] * (self.steps - 1 - len(given)))
        if self.mixes:
            if not isinstance(mix, Tensor):
                mix = z.new_tensor(0.5 if mix is None else mix, dtype=torch.float64)
            more["mix"] = mix.double()
        alpha, betas = self.coefficients(delta.double(), z.double(), **more)
        return alpha.to(z.dtype), tuple(beta.to(z.dtype) for beta in betas)


def register(discretization: Discretization) -> Discretization:
    """Check the facts of `discretization`, then make it available everywhere under its name."""
    if not discretization.name.isidentifier():
        raise ValueError(f"a discretization's name must be a plain identifier, got {discretization.name!r}")
    if discretization.name in DISCRETIZATIONS:
        raise ValueError(f"a discretization named {discretization.name!r} is already registered")
    _check_facts(discretization)
    DISCRETIZATIONS[discretization.name] = discretization
    return discretization


def get_discretization(discretization: str | Discretization) -> Discretization:
    """The rule with the name `discretization`. A `Discretization` is returned as it is."""
    if isinstance(discretization, Discretization):
        return discretization
    if not isinstance(discretization, str) or discretization not in DISCRETIZATIONS:
        sentence = unknown("discretization", discretization, list(DISCRETIZATIONS))
        own = "" if "did you mean" in sentence else "; a rule of your own comes with --import FILE or tustin.register"
        raise ValueError(sentence + own)
    return DISCRETIZATIONS[discretization]


def _check_facts(discretization: Discretization) -> None:
    """Raise unless every declared fact holds on a grid of steps, in float64."""

    def insist(true: bool, claim: str) -> None:
        if not true:
            raise ValueError(f"discretization {discretization.name!r}: {claim}")

    z = torch.cat([torch.zeros(1), -torch.logspace(-6, 1.9, 80)]).double()
    delta = torch.tensor([[1e-3], [0.1], [1.0], [10.0]], dtype=torch.float64)
    alpha, betas = discretization(delta, z)
    insist(
        isinstance(betas, tuple) and len(betas) == discretization.taps > 0,
        f"declares {discretization.taps} input samples, so coefficients must return that many β in a tuple",
    )
    insist(
        all(bool(c.isfinite().all()) for c in (alpha, *betas)),
        "a coefficient is not finite for some z in [-80, 0]",
    )

    low, high = discretization.stable
    insist(low < high, f"declares the empty stable interval [{low}, {high}]")
    ends = [(end, outwards) for end, outwards in ((low, -1), (high, 1)) if math.isfinite(end)]
    inside = torch.cat([z[(z >= low) & (z <= high)], z.new_tensor([end for end, _ in ends])])
    exceeds = discretization(delta, inside)[0].abs() > 1 + 1e-12
    insist(not exceeds.any(), f"|α| exceeds 1 inside the declared stable interval [{low:g}, {high:g}]")
    for end, outwards in ends:
        beyond = z.new_tensor([end + outwards * 1e-3 * max(1.0, abs(end))])
        insist(
            bool((discretization(delta[0], beyond)[0].abs() > 1).all()),
            f"|α| ≤ 1 also just outside {end:g}, so the stable interval is larger",
        )

    total = torch.stack([b.expand(delta.numel(), z.numel()) for b in betas]).sum(0)
    settles = bool(torch.allclose(alpha.expand_as(total), 1 + z * total / delta, rtol=0, atol=1e-9))
    insist(
        settles == discretization.exact_equilibrium,
        f"declares exact_equilibrium={discretization.exact_equilibrium}, but α = 1 + z·Σβ/Δ "
        f"{'holds' if settles else 'does not hold'}",
    )

    insist(
        (discretization.steps > 1) == (discretization.largest_weight is not None),
        f"depends on {discretization.steps} steps; largest_weight must be given only for two or more steps",
    )
    if discretization.largest_weight is not None:
        found = _largest_weight(discretization, z)
        insist(
            math.isclose(found, discretization.largest_weight, rel_tol=1e-3),
            f"declares the largest weight {discretization.largest_weight:g}, but it is {found:g}",
        )

    small = torch.tensor([1e-7], dtype=torch.float64)  # Δ → 0 at A = −1
    small_alpha, small_betas = discretization(small, -small)
    consistent = abs(float(sum(small_betas) / small) - 1) < 1e-5
    consistent = consistent and abs(float((small_alpha - 1) / small) + 1) < 1e-5
    insist(
        consistent == (discretization.order > 0) == (discretization.held_order > 0),
        f"declares order {discretization.order} (input held: {discretization.held_order}), but as Δ → 0 it "
        f"{'converges' if consistent else 'does not converge'} to the continuous system",
    )


def _largest_weight(discretization: Discretization, z: Tensor) -> float:
    """The largest Σ|β|/Δ, at Δ = 1, over ratios of neighbouring steps from 1/RATIO to RATIO."""
    ratios = torch.logspace(-math.log10(RATIO), math.log10(RATIO), 41, dtype=z.dtype)[:, None]
    earlier = tuple(ratios ** -(j + 1) for j in range(discretization.steps - 1))
    _, betas = discretization(torch.ones_like(ratios), z, earlier=earlier)
    return float(sum(beta.abs() for beta in betas).max())  # type: ignore[union-attr]
