"""Random scans: the float64 reference's result, or one sentence that names the argument."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tests.native import LEVELS, cpu_level
from tests.ops.scan.test_native_accuracy import LAYOUTS
from tests.ops.tensor_kinds import UNUSABLE, USABLE, plain
from tests.systems import FUSED, OPTIONAL, system
from tests.tolerances import DERIVATIVES, SCAN, VALUES, assert_close
from tustin import DISCRETIZATIONS, selective_scan
from tustin.discretize import get_discretization

TENSORS = ("u", "delta", "A", "B", "C", *OPTIONAL)
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
ODD_VALUES = (torch.nan, torch.inf, -torch.inf, 3e38, -1e38, 1e-40, -0.0)
GRADIENTS = {**VALUES, **DERIVATIVES}
"""The half dtypes: one rounding."""


@dataclass
class Case:
    """One call: what differs from the plain one, the arguments, and what is expected of it."""

    description: str
    level: str | None
    arguments: dict[str, Any]
    options: dict[str, Any]
    requires_grad: tuple[str, ...] = ()
    kind_of_gradient: str | None = None
    odd: str | None = None
    """The argument that holds an odd value."""
    refusal: str | None = None
    """What the sentence says with which the call is refused."""


def cases(seed: int) -> Iterator[Case]:
    """Cases without end; the same seed gives the same ones."""
    chance = random.Random(seed)
    while True:
        yield chance.choice((_usable, _usable, _odd, _wrong))(chance)


def check(case: Case) -> None:
    """Raise AssertionError, and say of which case, unless it does what is expected."""
    try:
        with cpu_level(case.level) if case.level else nullcontext():
            {True: _check_refusal, False: _check_result}[case.refusal is not None](case)
    except AssertionError as error:
        raise AssertionError(f"{case.description}: {error}") from error


# ── making cases ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _usable(chance: random.Random, batches: tuple[int, ...] = (0, 1, 1, 2, 3)) -> Case:
    """Random sizes, forms, dtypes, layouts, options and kinds of tensors."""
    D = chance.choice((1, 2, 3, 6, 8, 17, 33))
    forms = [chance.choice(("constant", "token", "grouped", D)) for _ in range(2)]
    sizes = chance.choice(batches), D, chance.choice((1, 2, 5, 9, 33)), chance.choice((1, 2, 7, 16))
    optional = tuple(name for name in OPTIONAL if chance.random() < 0.5)
    discretization = chance.choice(list(DISCRETIZATIONS))
    arguments = system(
        *sizes, B=forms[0], C=forms[1], optional=optional, discretization=discretization, seed=chance.getrandbits(32)
    )
    dtype = chance.choice(DTYPES)
    changes = []
    requires_grad = {name for name in arguments if chance.random() < 0.5}
    for name, t in arguments.items():
        layout = chance.choice(list(LAYOUTS))
        own = chance.choice(DTYPES) if chance.random() < 0.2 else dtype
        arguments[name] = LAYOUTS[layout](name, t.to(own))
        changes.append(f"{name} {layout} {str(own).removeprefix('torch.')}")
    kind = ""
    if sizes[0] and chance.random() < 0.3:
        name, kind = chance.choice([n for n in arguments if n != "A"]), chance.choice(list(USABLE))
        value = arguments[name]
        arguments[name] = USABLE[kind](-value if kind == "negated" else value)
        changes.append(f"{name} {kind}")
        requires_grad -= {name} if kind != "inference" else requires_grad  # PyTorch does not keep those for a gradient
    options = {
        "discretization": DISCRETIZATIONS[discretization] if chance.random() < 0.2 else discretization,
        "backend": chance.choice(("auto", "auto", "native" if LEVELS else "auto", "reference")),
        "reverse": chance.random() < 0.5,
        "delta_softplus": chance.random() < 0.5,
    }
    level = chance.choice(LEVELS) if LEVELS else None
    kind_of_gradient = chance.choice(list(USABLE)) if sizes[0] and chance.random() < 0.2 else None
    if {kind, kind_of_gradient} == {"subclass", "wrapper of two"}:  # PyTorch itself cannot make one into the other
        kind_of_gradient = None
    if discretization not in FUSED:  # other backends warn and take this one, or refuse
        options["backend"] = "reference"
    return Case(
        description=f"sizes {sizes}, forms {forms}, {options}, {', '.join(changes)}",
        level=level,
        arguments=dict(arguments),
        options=options,
        requires_grad=tuple(sorted(requires_grad)),
        kind_of_gradient=kind_of_gradient,
    )


def _odd(chance: random.Random) -> Case:
    """One value somewhere that is hardly a number."""
    case = _usable(chance)
    for other, t in case.arguments.items():
        if t._is_zerotensor():  # in the reference PyTorch multiplies it by an infinity, and gets zero
            case.arguments[other] = plain(t)
    name, value = chance.choice(list(case.arguments)), chance.choice(ODD_VALUES)
    t = plain(case.arguments[name]).detach().contiguous()
    if t.numel():
        t.view(-1)[chance.randrange(t.numel())] = value
    case.arguments[name], case.odd = t, name
    case.description += f", {name} {value}"
    return case


def _wrong(chance: random.Random) -> Case:
    """One argument or option that must be refused."""
    case = _usable(chance, batches=(1, 2))
    if get_discretization(case.options["discretization"]).name not in FUSED:  # of which "auto" warns first
        return _wrong(chance)
    if chance.random() < 0.3:
        name, value, case.refusal = chance.choice(WRONG_OPTIONS)
        case.options[name] = value
    else:
        name = chance.choice(list(case.arguments))
        change, refusal = chance.choice(WRONG_TENSORS)
        try:
            case.arguments[name] = value = change(plain(case.arguments[name]))
        except (RuntimeError, TypeError):  # there is no such tensor of this dtype or shape
            return _wrong(chance)
        case.refusal = refusal.format(name=name, tensor="a tensor or a number" if name == "mix" else "a tensor")
        case.options["backend"] = "auto"  # in the reference PyTorch itself meets it
    case.description += f", {name} {type(value).__name__}: {case.refusal}"
    return case


WRONG_TENSORS: list[tuple[Callable[[Tensor], Any], str]] = [
    (lambda t: t.tolist(), "{name} must be {tensor}, got "),
    (lambda t: t.numpy(), "{name} must be {tensor}, got ndarray"),
    (lambda t: t.long(), "{name} is torch.int64; expected one of"),
    (lambda t: t.float() + 0j, "{name} is torch.complex"),
    (lambda t: t.to(torch.float8_e4m3fn), "{name} is torch.float8_e4m3fn; expected one of"),
    (lambda t: t[None, None, None], "{name} has shape"),
    (lambda t: torch.cat([t, t, t[..., :1]], dim=-1), " has shape"),
    *((change, words) for change, words in UNUSABLE.items()),
]
WRONG_OPTIONS: list[tuple[str, object, str]] = [
    *((name, value, name) for name in ("reverse", "delta_softplus", "return_last_state") for value in (None, 1, "no")),
    *(("discretization", value, "unknown discretization") for value in ("zho", None, 3, ["zoh"], {})),
    *(("backend", value, "unknown backend") for value in ("cpu", None, 3, ["native"], {})),
    ("initial_state", 1.0, "initial_state must be a tensor, got float"),
    *(("mix", value, "mix ") for value in (1.5, "half", [0.5], True)),
]


# ── judging them ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _check_refusal(case: Case) -> None:
    try:
        selective_scan(**case.arguments | case.options)
    except (ValueError, TypeError, RuntimeError, NotImplementedError) as error:
        sentence = str(error)
        assert case.refusal is not None
        assert case.refusal in sentence, f"the sentence was {sentence!r}"
        assert "\n" not in sentence
    else:
        raise AssertionError("it was not refused")


def _check_result(case: Case) -> None:
    leaves = {n: t.detach().requires_grad_() if n in case.requires_grad else t for n, t in case.arguments.items()}
    wanted = case.requires_grad
    exact = {name: plain(t).detach().double().requires_grad_(name in wanted) for name, t in leaves.items()}
    got = selective_scan(**leaves, **case.options, return_last_state=True)
    expected = selective_scan(**exact, **case.options | {"backend": "reference"}, return_last_state=True)
    assert got[0].dtype == leaves["u"].dtype
    if case.odd:
        _check_odd(case, got, expected)
        return
    for what, one, other in zip(("output", "last state"), got, expected, strict=True):
        _assert_close(plain(one), other, SCAN, what)
    if wanted:
        d_out = torch.ones_like(plain(got[0]))
        given = USABLE[case.kind_of_gradient](d_out) if case.kind_of_gradient else d_out
        gradients = _gradients(got, [leaves[name] for name in wanted], given)
        exact_gradients = _gradients(expected, [exact[name] for name in wanted], plain(given).double())
        for name, one, other in zip(wanted, gradients, exact_gradients, strict=True):
            _assert_close(plain(one), other, GRADIENTS, f"gradient of {name}")


def _gradients(outputs: tuple[Tensor, ...], leaves: list[Tensor], d_out: Tensor) -> tuple[Tensor, ...]:
    """Of the output and, where it has any, of the last state."""
    out, last = outputs
    given = {out: d_out} | ({last: torch.ones_like(plain(last))} if last.requires_grad else {})
    return torch.autograd.grad(list(given), leaves, list(given.values()))


def _check_odd(case: Case, got: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    """What docs/math.md promises: a NaN shows exactly where it must, and what an infinity reaches is not finite."""
    odd = plain(case.arguments[str(case.odd)])
    for one, other in zip(map(plain, got), expected, strict=True):
        if odd.isnan().any():
            assert torch.equal(one.isnan(), other.isnan()), "NaN is elsewhere"
        elif odd.isinf().any() and case.odd not in ("delta", "A", "delta_bias"):
            assert torch.equal(one.isfinite(), other.isfinite()), "infinity is elsewhere"


def _assert_close(got: Tensor, expected: Tensor, table: dict[torch.dtype, float], what: str) -> None:
    """As `assert_close`, judged by 1 where all values are smaller: the arguments are of that size, and terms cancel."""
    assert got.shape == expected.shape, f"{what}: shape {tuple(got.shape)}, expected {tuple(expected.shape)}"
    assert_close(*(torch.cat([t.detach().flatten(), t.new_ones(1)]) for t in (got, expected)), table, what)
