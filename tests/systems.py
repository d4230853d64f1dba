"""Arguments for `selective_scan`, and the backends and rules to run it with."""

import pytest
import torch
from torch import Tensor

import tustin.discretize
from tustin import DISCRETIZATIONS
from tustin.ops.scan import BACKENDS

FORMS = ("constant", "token", "grouped")
OPTIONAL = ("D", "z", "delta_bias", "initial_state", "mix")
FUSED = tuple(rule.name for rule in tustin.discretize.FUSED)
CPU = torch.device("cpu")


def discretizations_of(backend: str) -> list[str]:
    """The registered rules that `backend` runs on the CPU; all of them if it cannot even be asked."""
    refuses = BACKENDS[backend].refuses
    return [
        name
        for name, discretization in DISCRETIZATIONS.items()
        if BACKENDS[backend].missing() or not refuses(CPU, discretization)
    ]


def _param(backend: str, *more: str) -> object:
    reason = BACKENDS[backend].missing()
    return pytest.param(backend, *more, marks=pytest.mark.skip(reason=reason) if reason else ())


_ON_CPU = [name for name in BACKENDS if name != "triton"]
each_backend = pytest.mark.parametrize("backend", [_param(b) for b in _ON_CPU])
each_run = pytest.mark.parametrize(
    ("backend", "discretization"), [_param(b, m) for b in _ON_CPU for m in discretizations_of(b)]
)


def system(
    batch: int = 2,
    D: int = 4,
    L: int = 5,
    N: int = 3,
    *,
    B: str | int = "token",
    C: str | int = "token",
    optional: tuple[str, ...] = (),
    discretization: str = "mamba",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> dict[str, Tensor]:
    """Random arguments of the given sizes and forms, by name; a number is a form too: that of so many groups.

    z = ΔA reaches −8, so that `rk4` uses its limiter, but stays inside the interval on which the rule is stable:
    outside, the states of `rk4_raw` grow until rounding is all there is.
    """
    rule = DISCRETIZATIONS[discretization]
    fastest = min(4.0, -rule.stable[0] / 2.5)  # no step below exceeds 2.5, softplus or not
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(*shape, generator=random, dtype=torch.float64)

    def matrix(form: str | int) -> Tensor:
        groups = form if isinstance(form, int) else next(g for g in (2, 3, 1) if D % g == 0)
        shapes = {"constant": (D, N), "token": (batch, N, L), "grouped": (batch, groups, N, L)}
        return normal(*shapes["grouped" if isinstance(form, int) else form])

    arguments = {
        "u": normal(batch, D, L),
        "delta": uniform(0.05, 2.0, batch, D, L),
        "A": -uniform(0.2, fastest, D, N),
        "B": matrix(B),
        "C": matrix(C),
        "D": normal(D),
        "z": normal(batch, D, L),
        "delta_bias": uniform(0.0, 0.3, D),
        "initial_state": normal(batch, D, N),
        "mix": uniform(0.0, 1.0, batch, D, L),
    }
    if rule.state_parts > 1:  # the v before the first token, and the steps
        past, steps = normal(batch, D, N, rule.taps - 1), uniform(0.05, 2.0, batch, D, 1, rule.steps - 1)
        arguments["initial_state"] = torch.cat(
            [arguments["initial_state"][..., None], past, steps.expand(batch, D, N, -1)], -1
        )
    wanted = [name for name in optional if name != "mix" or rule.mixes]
    return {name: t.to(dtype) for name, t in arguments.items() if name not in OPTIONAL or name in wanted}


def cast(arguments: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """The same arguments in another dtype."""
    return {name: tensor.to(dtype) for name, tensor in arguments.items()}
