"""Updates token by token are the convolution of the sequence: shapes, dtypes, lengths of the state; to the bit."""

import pytest
import torch
import torch.nn.functional as F

from tests.native import LEVELS, cpu_level, needs_native
from tests.ops.conv.test_conv import filters
from tests.ops.update.tokens import conv_updates
from tests.tolerances import SCAN, assert_close
from tustin import causal_conv, causal_conv_update

BACKENDS = [pytest.param("native", marks=needs_native), "reference"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("tokens", [1, 3, 11])
@pytest.mark.parametrize(("K", "S"), [(1, 0), (1, 2), (2, 1), (4, 3), (4, 4), (4, 9), (9, 8)])
def test_updates_are_the_convolution(backend: str, tokens: int, K: int, S: int) -> None:
    x = filters(2, 37, 11, K, dtype=torch.float64)
    state = torch.zeros(2, 37, S, dtype=torch.float64)
    y = conv_updates(x["x"], state, x["weight"], x["bias"], tokens=tokens, backend=backend)
    assert_close(y, causal_conv(**x, backend="reference"))
    assert torch.equal(state, F.pad(x["x"], (S, 0))[..., 11:])


@needs_native
@pytest.mark.parametrize("silu", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_the_same_bits_as_the_convolution(silu: bool, bias: bool) -> None:
    x = filters(2, 300, 13, 4, bias)
    for level in LEVELS:
        with cpu_level(level):
            y = conv_updates(x["x"], torch.zeros(2, 300, 3), *list(x.values())[1:], silu=silu)
            assert torch.equal(y, causal_conv(**x, silu=silu))


@needs_native
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("state_dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(dtype: torch.dtype, state_dtype: torch.dtype) -> None:
    x = filters(2, 20, 4, 4, dtype=dtype)
    state = x["x"][..., :3].to(state_dtype)
    samples = torch.cat([state.double(), x["x"][..., 3:].double()], -1)
    y = causal_conv_update(x["x"][..., 3:], state, x["weight"], x["bias"])
    expected = causal_conv(samples, x["weight"].double(), x["bias"].double(), backend="reference")[..., 3:]
    assert (y.dtype, state.dtype) == (dtype, state_dtype)
    assert_close(y, expected, SCAN)
    assert torch.equal(state, samples[..., 1:].to(state_dtype))


@needs_native
def test_strides() -> None:
    """x as the first half of a projection, a state that is a part of a larger one."""
    x = filters(3, 20, 6, 4)
    narrow = torch.cat([x["x"].mT, x["x"].mT], -1)[..., :20].mT
    wide = torch.full((3, 2, 20, 8), torch.nan)
    state = wide[:, 1, :, ::2].zero_()
    y = conv_updates(narrow, state, x["weight"].T.contiguous().T, x["bias"])
    assert torch.equal(y, causal_conv(**x))
    assert torch.equal(state, x["x"][..., -4:])
    assert wide[:, 0].isnan().all()
    assert wide[..., 1::2].isnan().all()


def test_a_token_without_its_dimension() -> None:
    x = filters(2, 5, 1, 4)
    states = [torch.ones(2, 5, 3), torch.ones(2, 5, 3)]
    y = causal_conv_update(x["x"][..., 0], states[0], x["weight"], x["bias"])
    assert torch.equal(y, causal_conv_update(x["x"], states[1], x["weight"], x["bias"])[..., 0])


def test_gradients_flow_through_updates() -> None:
    x = {name: t.requires_grad_() for name, t in filters(2, 5, 6, 4, dtype=torch.float64).items()}
    y = conv_updates(x["x"], torch.zeros(2, 5, 3, dtype=torch.float64), x["weight"], x["bias"])
    got = torch.autograd.grad(y.square().sum(), list(x.values()))
    expected = torch.autograd.grad(causal_conv(**x).square().sum(), list(x.values()))
    for name, one, other in zip(x, got, expected, strict=True):
        assert_close(one, other, what=name)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"x": torch.zeros(4)}, r"x has shape \(4,\), expected \(batch, D\), or \(batch, D, L\) with L of at least 1"),
        (
            {"state": torch.zeros(2, 5, 2)},
            r"state has shape \(2, 5, 2\), expected \(2, 5, S\) with S of at least K − 1 = 3",
        ),
        ({"weight": torch.zeros(4, 4)}, r"weight has shape \(4, 4\), expected \(D, K\) with D = 5"),
        ({"bias": torch.zeros(4)}, r"bias has shape \(4,\), expected \(5,\)"),
    ],
)
def test_a_wrong_shape(wrong: dict, words: str) -> None:
    arguments = {**filters(2, 5, 1, 4), "state": torch.zeros(2, 5, 3), **wrong}
    with pytest.raises(ValueError, match=f"causal_conv_update: {words}"):
        causal_conv_update(**arguments)


def test_other_mistakes() -> None:
    x = filters(2, 5, 1, 4)
    with pytest.raises(TypeError, match="causal_conv_update: state must be a tensor, got NoneType"):
        causal_conv_update(**x, state=None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="causal_conv_update: silu must be True or False, got 'silu'"):
        causal_conv_update(**x, state=torch.zeros(2, 5, 3), silu="silu")  # type: ignore[arg-type]
    for overlapping in (torch.zeros(1, 5, 3).expand(2, 5, 3), torch.zeros(2, 7).unfold(1, 3, 1)):
        with pytest.raises(ValueError, match="state is overwritten, but some of its elements may share memory, as in"):
            causal_conv_update(**x, state=overlapping)
