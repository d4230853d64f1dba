"""Every mistake is one clear sentence that names the argument and what was expected."""

import pytest
import torch

import tustin
from tests.systems import OPTIONAL, system
from tustin import DISCRETIZATIONS, selective_scan
from tustin.ops.scan import BACKENDS

BATCH, D, L, N = 2, 6, 5, 3
REQUIRED = ("u", "delta", "A", "B", "C")
ALL = (*REQUIRED, *(name for name in OPTIONAL if name != "mix"))  # which has a test of its own


def arguments(**changed: object) -> dict[str, object]:
    return {**system(BATCH, D, L, N, optional=OPTIONAL), **changed}


def message_of(error: type[Exception], options: dict[str, object] | None = None, **changed: object) -> str:
    """The sentence with which the scan refuses; it must be one line."""
    with pytest.raises(error) as caught:
        selective_scan(**arguments(**changed), **(options or {}))
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_the_unchanged_arguments_are_accepted() -> None:
    """The control: whatever is refused below is refused for the one thing that was changed."""
    assert selective_scan(**arguments()).shape == (BATCH, D, L)


def test_unknown_discretization() -> None:
    message = message_of(ValueError, {"discretization": "zho"})
    assert message == f"unknown discretization 'zho' (did you mean 'zoh'?); known: {', '.join(DISCRETIZATIONS)}"


@pytest.mark.parametrize("name", ["nothing like it", None, 3, ["nothing"]], ids=str)
def test_unknown_discretization_with_no_close_match(name: object) -> None:
    assert (
        message_of(ValueError, {"discretization": name})
        == f"unknown discretization {name!r}; known: {', '.join(DISCRETIZATIONS)}; "
        "a rule of your own comes with --import FILE or tustin.register"
    )


def test_unknown_backend() -> None:
    message = message_of(ValueError, {"backend": "referense"})
    known = ", ".join(["auto", *BACKENDS])
    assert message == f"unknown backend 'referense' (did you mean 'reference'?); known: {known}"


@pytest.mark.parametrize("name", [None, 3, ["nothing"]], ids=str)
def test_backend_that_is_no_name(name: object) -> None:
    assert message_of(ValueError, {"backend": name}) == f"unknown backend {name!r}; known: auto, {', '.join(BACKENDS)}"


@pytest.mark.parametrize("value", [None, 1, "yes", torch.tensor(True)], ids=str)
@pytest.mark.parametrize("name", ["delta_softplus", "return_last_state", "reverse"])
def test_flags(name: str, value: object) -> None:
    assert message_of(TypeError, {name: value}) == f"selective_scan: {name} must be True or False, got {value!r}"


MISSHAPEN = {
    "u": [((BATCH, D), "(batch, D, L)"), ((BATCH, D, L, 1), "(batch, D, L)"), ((BATCH, D, 0), "L of at least 1")],
    "delta": [((BATCH, D, L + 1), "(2, 6, 5)"), ((BATCH, D), "(2, 6, 5)"), ((1, D, L), "(2, 6, 5)")],
    "A": [((D + 1, N), "D = 6"), ((D,), "(D, N)"), ((D, 0), "N of at least 1"), ((BATCH, D, N), "(D, N)")],
    **{
        matrix: [
            ((D, N + 1), "(6, 3)"),
            ((N, D), "(6, 3)"),
            ((BATCH, L, N), "(2, 3, 5)"),
            ((BATCH + 1, N, L), "(2, 3, 5)"),
            ((BATCH, 4, N, L), "G dividing 6"),
            ((BATCH, 0, N, L), "G dividing 6"),
            ((BATCH, 2, N, L + 1), "(2, G, 3, 5)"),
            ((N,), "(batch, N, L)"),
        ]
        for matrix in ("B", "C")
    },
    "D": [((D + 1,), "(6,)"), ((D, 1), "(6,)"), ((), "(6,)")],
    "z": [((BATCH, D, L - 1), "(2, 6, 5)"), ((BATCH, L, D), "(2, 6, 5)")],
    "delta_bias": [((D - 1,), "(6,)"), ((1, D), "(6,)")],
    "initial_state": [((BATCH, D), "(2, 6, 3)"), ((BATCH, D, N + 1), "(2, 6, 3)"), ((BATCH, D, N, 1), "(2, 6, 3)")],
}


@pytest.mark.parametrize(
    ("name", "shape", "expected"), [(n, *case) for n, cases in MISSHAPEN.items() for case in cases]
)
def test_wrong_shape(name: str, shape: tuple[int, ...], expected: str) -> None:
    """Says which tensor, what it had, and what was expected."""
    message = message_of(ValueError, **{name: torch.ones(shape)})
    said, wanted = message.split(", expected ")
    assert said == f"selective_scan: {name} has shape {shape}"
    assert expected in wanted


def test_wrong_mix() -> None:
    """λ is for the rule that has one; a number is between 0 and 1, and a tensor as large as u."""
    x = system(BATCH, D, L, N)
    wrong: list[tuple[object, str]] = [
        (-0.1, "mix must be between 0 and 1, got -0.1"),
        ("1", "mix must be a tensor or a number, got str"),
        (True, "mix must be a tensor or a number, got bool"),
        (torch.ones(BATCH, D), "mix has shape (2, 6), expected (2, 6, 5)"),
        (torch.ones(BATCH, D, L).long(), "mix is torch.int64; expected one of"),
        (torch.ones(BATCH, D, L, device="meta"), "mix is on meta, but u is on cpu"),
    ]
    for mix, words in wrong:
        with pytest.raises((ValueError, TypeError)) as caught:
            selective_scan(**x, discretization="exptrap", mix=mix, backend="reference")  # type: ignore[arg-type]
        assert str(caught.value).startswith(f"selective_scan: {words}")
    with pytest.raises(ValueError, match="mix is given, but discretization 'mamba' has no λ"):
        selective_scan(**x, mix=0.5)


def test_every_argument_is_tried() -> None:
    assert set(MISSHAPEN) == set(ALL)


@pytest.mark.parametrize("name", ALL[1:])
def test_mixed_devices(name: str) -> None:
    message = message_of(ValueError, **{name: arguments()[name].to("meta")})
    assert message == f"selective_scan: {name} is on meta, but u is on cpu"


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float8_e4m3fn], ids=str)
@pytest.mark.parametrize("name", ALL)
def test_other_dtypes(name: str, dtype: torch.dtype) -> None:
    message = message_of(TypeError, **{name: arguments()[name].to(dtype)})
    assert message == f"selective_scan: {name} is {dtype}; expected one of float32, float64, bfloat16, float16"


@pytest.mark.parametrize("name", ["A", "B", "C"])
def test_complex(name: str) -> None:
    """Mamba's own scan takes a complex A; ours says that it does not."""
    message = message_of(TypeError, **{name: arguments()[name].to(torch.complex64)})
    assert message.startswith(f"selective_scan: {name} is torch.complex64; complex numbers are not supported, expected")


@pytest.mark.parametrize("name", REQUIRED)
def test_required_argument_is_none(name: str) -> None:
    assert message_of(TypeError, **{name: None}) == f"selective_scan: {name} must be a tensor, got NoneType"


@pytest.mark.parametrize("name", ALL)
def test_not_a_tensor(name: str) -> None:
    assert message_of(TypeError, **{name: [1.0]}) == f"selective_scan: {name} must be a tensor, got list"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")], ids=str)
@pytest.mark.parametrize("name", ALL)
def test_values_that_are_not_finite(name: str, value: float) -> None:
    """Inside `check_values()` the tensor, the value and its place are named; outside nothing is read."""
    bad = arguments()[name].clone()
    at = tuple(size - 1 for size in bad.shape)
    bad[at] = value
    selective_scan(**arguments(**{name: bad}))
    with tustin.check_values():
        message = message_of(ValueError, **{name: bad})
        selective_scan(**arguments())
    assert message == (
        f"selective_scan: {name} has 1 non-finite value, the first is {value} at index {at}; every value must be finite"
    )
    selective_scan(**arguments(**{name: bad}))


def test_several_bad_values_are_counted() -> None:
    delta = torch.ones(BATCH, D, L)
    delta[1, 2, 3:] = torch.nan
    with tustin.check_values():
        message = message_of(ValueError, delta=delta)
    assert "delta has 2 non-finite values, the first is nan at index (1, 2, 3)" in message


def test_checks_nest_and_survive_an_error() -> None:
    """`check_values(False)` inside turns them off, and the state before comes back, even after an exception."""
    bad = arguments(delta=torch.full((BATCH, D, L), torch.nan))
    with tustin.check_values():
        with tustin.check_values(False):
            selective_scan(**bad)
        with pytest.raises(ValueError, match="delta has 60 non-finite values"):
            selective_scan(**bad)
        with pytest.raises(KeyError), tustin.check_values(False):
            raise KeyError
        with pytest.raises(ValueError, match="delta"):
            selective_scan(**bad)
    selective_scan(**bad)


def test_positional_arguments_end_where_mambas_do() -> None:
    """rule, reverse, backend and initial_state only by name: no later argument of Mamba's can be taken for one."""
    x = system(optional=("D", "z", "delta_bias"))
    with pytest.raises(TypeError, match="positional arguments"):
        selective_scan(*x.values(), False, False, "zoh")
