"""Triton's updates, run by its interpreter, against the float64 reference; test_triton.py starts it."""

import pytest
import torch

from tests.interpreter import round_as_a_gpu_does
from tests.ops.conv.test_conv import filters
from tests.ops.update.tokens import conv_updates, sequence, updates
from tests.systems import cast
from tests.tolerances import SCAN, assert_close
from tustin import DISCRETIZATIONS, causal_conv, selective_scan
from tustin.ops.scan.triton_discretizations import DISCRETIZATIONS as COMPILED

round_as_a_gpu_does()


@pytest.mark.parametrize("discretization", COMPILED)
@pytest.mark.parametrize(
    ("batch", "D", "N", "B", "C"), [(2, 5, 7, "token", 5), (1, 36, 16, 2, 3), (2, 33, 3, 1, "token")]
)
def test_updates_are_the_scan(discretization: str, batch: int, D: int, N: int, B: str | int, C: str | int) -> None:
    assert discretization in DISCRETIZATIONS
    x = sequence(discretization, batch=batch, D=D, N=N, L=2, B=B, C=C)
    state = x["initial_state"].clone()
    how = {"delta_softplus": True, "discretization": discretization}
    y = updates(x, state, backend="triton", **how)
    expected, last = selective_scan(**cast(x, torch.float64), **how, backend="reference", return_last_state=True)
    assert_close(y, expected, SCAN)
    assert_close(state, last, SCAN)


@pytest.mark.parametrize("optional", [(), ("z",), ("D", "delta_bias")])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_dtypes_and_what_is_not_given(dtype: torch.dtype, optional: tuple[str, ...]) -> None:
    x = sequence(dtype=dtype, D=6, L=1)
    x = {name: t for name, t in x.items() if name not in ("D", "z", "delta_bias") or name in optional}
    state = torch.stack([x["initial_state"]] * 2, 1)[:, 0]
    y = updates(x, state, backend="triton")
    expected, last = selective_scan(**cast(x, torch.float64), backend="reference", return_last_state=True)
    assert (y.dtype, state.dtype) == (dtype, dtype)
    assert_close(y, expected, SCAN)
    assert_close(state, last, SCAN)


@pytest.mark.parametrize(("K", "S"), [(1, 0), (2, 1), (4, 3), (4, 6), (9, 8)])
@pytest.mark.parametrize("tokens", [1, 5])
def test_updates_are_the_convolution(K: int, S: int, tokens: int) -> None:
    x = filters(2, 131, 10, K, bias=K > 1)
    wide = torch.zeros(2, 131, 2 * S)
    state = wide[..., ::2]
    parameters = [t for name, t in x.items() if name != "x"]
    y = conv_updates(x["x"], state, *parameters, tokens=tokens, silu=K > 1, backend="triton")
    assert_close(y, causal_conv(**cast(x, torch.float64), silu=K > 1, backend="reference"), SCAN)
    assert torch.equal(state, torch.nn.functional.pad(x["x"], (S, 0))[..., 10:])
    assert not wide[..., 1::2].any()


def test_float64_is_the_convolutions_alone() -> None:
    x = filters(1, 5, 3, 4, dtype=torch.float64)
    y = conv_updates(x["x"], torch.zeros(1, 5, 3), x["weight"], x["bias"], backend="triton")
    assert_close(y, causal_conv(**x, backend="reference"), {torch.float64: 1e-6})  # the state is float32
    with pytest.raises(RuntimeError, match="'triton' cannot be used: it has no float64"):
        updates(sequence(dtype=torch.float64), torch.zeros(2, 4, 3), backend="triton")
