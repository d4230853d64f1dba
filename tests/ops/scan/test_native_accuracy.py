"""The native backend against the float64 reference: every rule and CPU level, awkward shapes, layouts and values."""

import itertools
import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.native import LEVELS, Arguments, assert_follows, cpu_level, each_discretization, needs_native
from tests.systems import FUSED, OPTIONAL, system
from tustin.ops import native
from tustin.ops.scan.native import discretization_names

pytestmark = needs_native


@pytest.mark.parametrize("level", native.LEVELS)
def test_level(level: str) -> None:
    """One that is there can be chosen; and here a run says which ones it did not test."""
    if level not in LEVELS:
        pytest.skip(f"level {level} is not in this library or not on this CPU")
    with cpu_level(level):
        assert native.cpu_level() == level


def test_unknown_level() -> None:
    before = native.cpu_level()
    with pytest.raises(ValueError, match="'v9' is unknown or not available on this CPU; levels: v4, v3, v2, baseline"):
        native.set_cpu_level("v9")
    assert native.cpu_level() == before


def test_compiled_discretizations_are_the_registered_ones() -> None:
    """Same names in the same order: none is missing from C++, and none there is unreachable."""
    assert discretization_names() == tuple(FUSED)


# ── layouts ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def plain(t: Tensor) -> Tensor:
    return t.contiguous()


def channel_last(t: Tensor) -> Tensor:
    """(batch, L, D) underneath; B and C: (batch, G, L, N), constant ones (N, D)."""
    return t.transpose(-1, -2).contiguous().transpose(-1, -2) if t.ndim > 1 else t


def sliced(t: Tensor) -> Tensor:
    """Every third element of something larger that is NaN elsewhere, starting at an odd address."""
    wide = torch.full((*t.shape, 3), torch.nan, dtype=t.dtype)
    wide[..., 1] = t
    return wide[..., 1]


def batch_inside(t: Tensor) -> Tensor:
    """The first dimension varies fastest."""
    return t.movedim(0, -1).contiguous().movedim(-1, 0)


def expanded(name: str, t: Tensor) -> Tensor:
    """Stride 0 along one dimension: one u for all channels, one delta for all tokens, one z and B for all samples, …"""
    along = {"u": 1, "A": 1, "delta": -1, "C": -1}.get(name, 0)
    return t.narrow(along, 0, min(1, t.shape[along])).expand_as(t)


LAYOUTS: dict[str, Callable[[str, Tensor], Tensor]] = {
    "plain": lambda name, t: plain(t),
    "channel_last": lambda name, t: channel_last(t),
    "sliced": lambda name, t: sliced(t),
    "batch_inside": lambda name, t: batch_inside(t),
    "expanded": expanded,
    "mixed": lambda name, t: {"u": channel_last, "z": sliced, "B": batch_inside}.get(name, plain)(t),
}


# ── the sweep over shapes, layouts and forms ─────────────────────────────────────────────────────────────────────────

FACTORS: dict[str, tuple] = {
    "L": (1, 2, 31, 32, 33, 63, 129),  # a chunk is 32 tokens
    "D": (1, 5, 16, 33, 48),  # a vector is 4 to 32 channels
    "N": (1, 7, 16, 64),
    "batch": (1, 3),
    "B": ("constant", "token", "few", "many"),
    "C": ("constant", "token", "few", "many"),
    "layout": tuple(LAYOUTS),
    "reverse": (False, True),
    "delta_softplus": (False, True),
    "optional": ((), OPTIONAL, ("D",), ("z", "delta_bias"), ("initial_state",)),
}


def covering(seed: int, factors: dict[str, tuple]) -> list[dict]:
    """Few cases in which every pair of values of any two factors occurs; other seeds, other cases."""
    chance = random.Random(seed)
    names = list(factors)
    pairs = {((a, x), (b, y)) for a, b in itertools.combinations(names, 2) for x in factors[a] for y in factors[b]}
    cases = []
    while pairs:
        (a, x), (b, y) = min(pairs, key=repr)  # at least this one is new, so it ends
        tries = [{n: chance.choice(factors[n]) for n in names} | {a: x, b: y} for _ in range(8)]
        best = max(tries, key=lambda case: len(pairs & set(itertools.combinations(case.items(), 2))))
        pairs -= set(itertools.combinations(best.items(), 2))
        cases.append(best)
    return cases


def groups(form: str, D: int) -> str | int:
    """ "few": the smallest divisor of D above 1; "many": the largest below D. Where both occur, they differ."""
    divisors = [g for g in range(2, D) if D % g == 0] or [D]
    return {"few": divisors[0], "many": divisors[-1]}.get(form, form)


CASES = covering(0, FACTORS)


def test_the_cases_cover_every_pair() -> None:
    """Of any two factors above, every combination of values is among the cases."""
    for a, b in itertools.combinations(FACTORS, 2):
        assert {(case[a], case[b]) for case in CASES} == set(itertools.product(FACTORS[a], FACTORS[b]))


def arguments_of(case: dict, discretization: str, **more: object) -> tuple[Arguments, dict]:
    """The tensors of a case, in its layout, and how to run them."""
    D = case["D"]
    forms = {"B": groups(case["B"], D), "C": groups(case["C"], D), "optional": case["optional"]}
    x = system(case["batch"], D, case["L"], case["N"], **forms, discretization=discretization, **more)
    x = {name: LAYOUTS[case["layout"]](name, t) for name, t in x.items()}
    return x, {"discretization": discretization, "reverse": case["reverse"], "delta_softplus": case["delta_softplus"]}


def name_of(case: dict | str) -> str:
    values = case.values() if isinstance(case, dict) else [case]
    return "-".join(str(value) for value in values if not isinstance(value, tuple))


# Each case is run by every third rule: what is particular to one is arithmetic, and does not know of shapes.
RUNS = [
    (case, discretization) for i, case in enumerate(CASES) for j, discretization in enumerate(FUSED) if (i + j) % 3 == 0
]


@pytest.mark.parametrize(("case", "discretization"), RUNS, ids=name_of)
def test_shapes_layouts_and_forms(case: dict, discretization: str) -> None:
    """Forward within 2e-6, every gradient within 1e-5 of its scale, on every level of this CPU."""
    x, how = arguments_of(case, discretization)
    assert_follows(x, least=0.1, **how)


@each_discretization
@pytest.mark.parametrize("case", CASES[:: len(CASES) // 4], ids=name_of)
def test_float64(case: dict, discretization: str) -> None:
    """Twelve digits: the double-precision kernel is not the single-precision one with wider variables."""
    x, how = arguments_of(case, discretization, dtype=torch.float64)
    assert_follows(x, least=0.1, **how)


@each_discretization
def test_no_batch(discretization: str) -> None:
    """An empty batch has an empty output, and gradients that are zero where they are shared."""
    x = system(0, 5, 33, 7, B="constant", C="grouped", optional=OPTIONAL, discretization=discretization)
    assert_follows(x, discretization=discretization, delta_softplus=True)
