"""The operators as upstream's callers call them: signatures, shapes, dtypes, and every argument that they pass."""

import inspect
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import tustin
import tustin.compat
from tests.tolerances import SCAN, VALUES, assert_close
from tustin.compat import vmamba

from . import oracle
from .stand_in import installed

BATCH, D, L, N = 2, 8, 13, 4


@pytest.fixture
def ops() -> Iterator[SimpleNamespace]:
    """What the vision code bases import."""
    with installed():
        import causal_conv1d
        from mamba_ssm.ops import selective_scan_interface
        from mamba_ssm.ops.triton import layer_norm, selective_state_update

        modules = (selective_scan_interface, layer_norm, selective_state_update, causal_conv1d)
        yield SimpleNamespace(**{name: getattr(module, name) for module in modules for name in module.__all__})


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def scan_arguments(form: str = "token", dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """u, delta, A, B, C, D, z and delta_bias, with B and C in one of their three forms."""
    shape = {"constant": (D, N), "token": (BATCH, N, L), "groups": (BATCH, 4, N, L)}[form]
    tensors = {name: normal(BATCH, D, L, seed=seed, dtype=dtype) for seed, name in enumerate(("u", "delta", "z"))}
    tensors |= {name: normal(*shape, seed=seed, dtype=dtype) for seed, name in enumerate("BC", 3)}
    tensors |= {name: normal(D, seed=seed) for seed, name in enumerate(("D", "delta_bias"), 5)}
    return tensors | {"A": -normal(D, N, seed=7).abs()}


# ── the scan ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("form", ["constant", "token", "groups"])
def test_the_scan_is_ours(ops: SimpleNamespace, form: str, dtype: torch.dtype) -> None:
    arguments = scan_arguments(form, dtype)
    expected, state = tustin.selective_scan(
        **{name: t.double() for name, t in arguments.items()}, delta_softplus=True, return_last_state=True
    )
    for function in (ops.selective_scan_fn, ops.selective_scan_ref):
        out, last_state = function(**arguments, delta_softplus=True, return_last_state=True)
        assert (out.dtype, last_state.dtype, last_state.shape) == (dtype, torch.float32, (BATCH, D, N))
        assert_close(out, expected, SCAN)
        assert_close(last_state, state, SCAN)
        alone = function(**arguments, delta_softplus=True, return_last_state=None)  # as MambaVision has it
        assert torch.equal(alone, out)


def test_the_order_of_the_arguments(ops: SimpleNamespace) -> None:
    expected = ["u", "delta", "A", "B", "C", "D", "z", "delta_bias", "delta_softplus", "return_last_state"]
    for function in (ops.selective_scan_fn, ops.selective_scan_ref):
        assert list(inspect.signature(function).parameters) == expected
    expected[6:] = ["delta_bias", "delta_softplus", "oflex", "backend"]
    assert list(inspect.signature(vmamba.selective_scan_fn).parameters) == expected


def test_strides_do_not_matter(ops: SimpleNamespace) -> None:
    arguments = scan_arguments("groups")
    expected = ops.selective_scan_fn(**arguments)
    strided = {name: t.transpose(0, -1).contiguous().transpose(0, -1) for name, t in arguments.items()}
    assert torch.equal(ops.selective_scan_fn(**strided), expected)
    wide = {name: torch.stack([t, t], -1).flatten(-2)[..., ::2] for name, t in arguments.items()}
    assert torch.equal(ops.selective_scan_fn(**wide), expected)


def test_the_rule_is_that_of_the_process(ops: SimpleNamespace) -> None:
    arguments = scan_arguments()
    before = ops.selective_scan_fn(**arguments, delta_softplus=True)
    tustin.compat.install(replace=True, discretization="bil")
    expected = tustin.selective_scan(**arguments, delta_softplus=True, discretization="bil")
    for function in (ops.selective_scan_fn, ops.selective_scan_ref):
        assert_close(function(**arguments, delta_softplus=True), expected, SCAN)
    assert not torch.allclose(before, expected)
    del arguments["z"]
    assert_close(
        vmamba.selective_scan_fn(**arguments),
        tustin.selective_scan(**arguments, delta_softplus=True, discretization="bil"),
        SCAN,
    )


def test_complex_numbers_are_refused_in_one_sentence(ops: SimpleNamespace) -> None:
    arguments = scan_arguments() | {"A": torch.complex(-torch.ones(D, N), torch.ones(D, N))}
    for function in (ops.selective_scan_fn, ops.selective_scan_ref):
        with pytest.raises(TypeError, match=r"A is torch.complex64; complex numbers are not supported"):
            function(**arguments)


def test_an_empty_batch(ops: SimpleNamespace) -> None:
    arguments = scan_arguments()
    nobody = {name: t[:0] if name in ("u", "delta", "z", "B", "C") else t for name, t in arguments.items()}
    out, state = ops.selective_scan_fn(**nobody, return_last_state=True)
    assert (out.shape, state.shape) == ((0, D, L), (0, D, N))


# ── the inside of a layer ────────────────────────────────────────────────────────────────────────────────────────────


def layer(ops: SimpleNamespace, **words: object) -> torch.nn.Module:
    from mamba_ssm import Mamba

    torch.manual_seed(0)
    return Mamba(6, d_state=N, dt_rank=3, bias=True, **words)


def inner_arguments(layer: torch.nn.Module) -> tuple[Tensor, ...]:
    return layer.conv1d.weight, layer.conv1d.bias, layer.x_proj.weight, layer.dt_proj.weight


def test_the_inner_functions_are_the_layer_in_one_call(ops: SimpleNamespace) -> None:
    one, shared = layer(ops), layer(ops, bimamba_type="v1")
    tokens = normal(BATCH, L, 6)
    out = one.out_proj.weight, one.out_proj.bias
    for xz in (one.in_proj(tokens).transpose(1, 2), one.in_proj(tokens).transpose(1, 2).contiguous()):
        A, options = -one.A_log.exp(), {"delta_bias": one.dt_proj.bias, "delta_softplus": True}
        y = ops.mamba_inner_fn(xz, *inner_arguments(one), *out, A, None, None, one.D, **options)
        assert_close(y, one(tokens), SCAN)
        y = ops.mamba_inner_fn_no_out_proj(xz, *inner_arguments(one), A, None, None, one.D, **options)
        assert y.shape == (BATCH, 12, L)
        assert_close(F.linear(y.transpose(1, 2), *out), one(tokens), SCAN)
    xz, out = shared.in_proj(tokens).transpose(1, 2), (shared.out_proj.weight, shared.out_proj.bias)
    both = -shared.A_log.exp(), -2 * shared.A_b_log.exp()
    y = ops.bimamba_inner_fn(xz, *inner_arguments(shared), *out, *both, None, None, shared.D, shared.dt_proj.bias)
    with torch.no_grad():
        shared.A_b_log += torch.tensor(2.0).log()
    assert_close(y, shared(tokens), SCAN)


def test_projections_may_have_biases_and_norms_and_matrices_may_be_given(ops: SimpleNamespace) -> None:
    one, x = layer(ops), normal(BATCH, 24, L)
    A, out = -one.A_log.exp(), (one.out_proj.weight, one.out_proj.bias)
    u, _, B, C = oracle.projected(one, x[:, :12])
    raw = one.dt_proj.weight @ (one.x_proj.weight[:3] @ u)
    weights = {
        "b_rms_weight": normal(N, seed=1),
        "c_rms_weight": normal(N, seed=2),
        "dt_rms_weight": normal(12, seed=3),
    }
    biases = {"B_proj_bias": normal(N, seed=4), "C_proj_bias": normal(N, seed=5)}

    def normed(t: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(t.transpose(1, 2), weight.shape, weight, 1e-3).transpose(1, 2)

    def expected(delta: Tensor, B: Tensor, C: Tensor) -> Tensor:
        y, _ = oracle.scan(u, F.softplus(delta), A, B, C, one.D)
        return F.linear((y * F.silu(x[:, 12:])).transpose(1, 2), *out)

    y = ops.mamba_inner_fn(x, *inner_arguments(one), *out, A, D=one.D, **biases, **weights, b_c_dt_rms_eps=1e-3)
    normed_B = normed(B + biases["B_proj_bias"][:, None], weights["b_rms_weight"])
    normed_C = normed(C + biases["C_proj_bias"][:, None], weights["c_rms_weight"])
    assert_close(y, expected(normed(raw, weights["dt_rms_weight"]), normed_B, normed_C), {torch.float32: 5e-6})

    given = normal(BATCH, N, L, seed=8), normal(12, N, seed=9)
    y = ops.mamba_inner_fn(x, *inner_arguments(one), *out, A, given[0], given[1], one.D)
    scanned = tustin.selective_scan(u, F.softplus(raw), A, *given, one.D)
    assert_close(y, F.linear((scanned * F.silu(x[:, 12:])).transpose(1, 2), *out), {torch.float32: 5e-6})


# ── one token ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rows", [None, torch.tensor([6, 0, 3], dtype=torch.int32)])
@pytest.mark.parametrize("heads", [(), (4,)])
def test_one_token_with_heads_groups_and_rows(
    ops: SimpleNamespace, heads: tuple[int, ...], rows: Tensor | None
) -> None:
    """What is updated is the state that was given, of whatever strides."""
    batch = 3
    x, dt, z = (normal(batch, *heads, D, seed=seed) for seed in range(3))
    A, skip, bias = -normal(*heads, D, N, seed=3).abs(), normal(*heads, D, seed=4), normal(*heads, D, seed=5)
    B, C = (normal(batch, *((2,) if heads else ()), N, seed=seed) for seed in (6, 7))
    whole = normal(N, 7 if rows is not None else batch, *heads, D, seed=8).movedim(0, -1)
    assert not whole.is_contiguous()
    before = whole.clone()

    group = {4: lambda m: m.repeat_interleave(2, 1)[:, :, None], 0: lambda m: m[:, None]}[sum(heads)]
    step = F.softplus(dt + bias)[..., None]
    state = torch.exp(step * A) * (before if rows is None else before[rows.long()]) + step * group(B) * x[..., None]
    expected = ((state * group(C)).sum(-1) + skip * x) * F.silu(z)

    out = ops.selective_state_update(whole, x, dt, A, B, C, skip, z, bias, True, state_batch_indices=rows)
    assert_close(out, expected, SCAN)
    assert_close(whole if rows is None else whole[rows.long()], state, SCAN)
    if rows is not None:
        assert torch.equal(whole[[1, 2, 4, 5]], before[[1, 2, 4, 5]])


def test_heads_have_one_rule(ops: SimpleNamespace) -> None:
    """They are Mamba-2's, whose scan comes from elsewhere: with another rule it and the update would not agree."""
    tustin.compat.install(replace=True, discretization="bil")
    state, x = torch.zeros(1, 4, D, N), torch.zeros(1, 4, D)
    with pytest.raises(ValueError, match=r"belongs to Mamba-2, which has only the rule 'mamba', but .* is 'bil'"):
        ops.selective_state_update(state, x, x, -torch.ones(4, D, N), torch.zeros(1, N), torch.zeros(1, N))


# ── the convolution ──────────────────────────────────────────────────────────────────────────────────────────────────


def convolved(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return F.conv1d(F.pad(x, (3, 0)), weight[:, None], bias, groups=D)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_convolution(ops: SimpleNamespace, dtype: torch.dtype) -> None:
    x, weight, bias = (
        normal(BATCH, D, L, dtype=dtype),
        normal(D, 4, seed=1, dtype=dtype),
        normal(D, seed=2, dtype=dtype),
    )
    expected = convolved(x.double(), weight.double(), bias.double())
    for activation in ("silu", "swish"):
        assert_close(ops.causal_conv1d_fn(x, weight, bias, activation=activation), F.silu(expected), VALUES)
    assert_close(ops.causal_conv1d_fn(x, weight, bias), expected, VALUES)
    assert_close(ops.causal_conv1d_fn(x, weight, bias, "silu"), F.silu(expected), VALUES)  # before version 1.1
    assert_close(ops.causal_conv1d_fn(x, weight), convolved(x.double(), weight.double(), None), VALUES)
    for mistake in ("relu", "Silu", True):
        with pytest.raises(NotImplementedError, match="activation must be None, 'silu' or 'swish', got "):
            ops.causal_conv1d_fn(x, weight, bias, activation=mistake)
    with pytest.raises(NotImplementedError, match="seq_idx is not supported"):
        ops.causal_conv1d_fn(x, weight, bias, torch.zeros(BATCH, L))


@pytest.mark.parametrize("cut", [1, 2, 5, 12])
def test_a_convolution_goes_on_where_another_ended(ops: SimpleNamespace, cut: int) -> None:
    x, weight, bias = normal(BATCH, D, L), normal(D, 4, seed=1), normal(D, seed=2)
    expected = ops.causal_conv1d_fn(x, weight, bias, activation="silu")
    out, kept = ops.causal_conv1d_fn(x[..., :cut], weight, bias, return_final_states=True, activation="silu")
    assert torch.equal(kept, F.pad(x[..., :cut], (3, 0))[..., -3:])
    given = torch.empty_like(kept)
    rest, returned = ops.causal_conv1d_fn(
        x[..., cut:],
        weight,
        bias,
        initial_states=kept,
        return_final_states=True,
        final_states_out=given,
        activation="silu",
    )
    assert returned is given
    assert torch.equal(given, x[..., -3:])
    assert_close(torch.cat([out, rest], -1), expected, SCAN)


@pytest.mark.parametrize("size", [3, 4, 7])
@pytest.mark.parametrize("ring", [False, True])
@pytest.mark.parametrize("tokens", [1, 2])
def test_the_next_tokens_of_a_convolution(ops: SimpleNamespace, size: int, ring: bool, tokens: int) -> None:
    """Also with the newest samples kept in a ring, and in some rows of a larger state."""
    if ring and size < tokens + 3:
        size = tokens + 3
    x, weight, bias = normal(BATCH, D, L), normal(D, 4, seed=1), normal(D, seed=2)
    expected = F.silu(convolved(x, weight, bias))
    rows, state = torch.tensor([4, 1]), torch.zeros(5, D, size)
    out = []
    for k in range(0, L - tokens + 1, tokens):
        piece = x[..., k] if tokens == 1 else x[..., k : k + tokens]
        seen = torch.full((BATCH,), k, dtype=torch.int32) if ring else None
        y = ops.causal_conv1d_update(piece, state, weight, bias, "silu", seen, rows)
        assert y.shape == piece.shape
        out.append(y.view(BATCH, D, tokens))
    got = torch.cat(out, -1)
    assert_close(got, expected[..., : got.shape[-1]], SCAN)
    assert not state[[0, 2, 3]].any()


# ── the norms ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rms", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_add_and_norm(ops: SimpleNamespace, rms: bool, dtype: torch.dtype) -> None:
    x, residual, x1 = (normal(2, 3, D, seed=seed, dtype=dtype) for seed in range(3))
    weight, bias, weight1, bias1 = (normal(D, seed=seed) for seed in range(3, 7))
    function = ops.rms_norm_fn if rms else ops.layer_norm_fn

    def norm(total: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        total = total.double() if rms else total.double() - total.double().mean(-1, keepdim=True)
        scaled = total / (total.square().mean(-1, keepdim=True) + 1e-3).sqrt() * weight
        return scaled if bias is None else scaled + bias

    exact = x.double() + residual.double()
    for kept in (residual, residual.double()):
        y, total = function(x, weight, bias, residual=kept, eps=1e-3, prenorm=True)
        assert (y.dtype, total.dtype) == (dtype, kept.dtype)
        assert_close(y, norm(exact, weight, bias), VALUES)
        assert_close(total, exact, VALUES if kept.dtype != dtype or dtype != torch.float32 else SCAN)
    assert_close(function(x, weight, None, eps=1e-3), norm(x, weight, None), VALUES)
    y, total = function(x, weight, bias, eps=1e-3, prenorm=True, residual_in_fp32=True)
    assert (y.dtype, total.dtype) == (dtype, torch.float32)
    y, y1, total = function(x, weight, bias, None, x1, weight1, bias1, 1e-3, prenorm=True)
    assert_close(y, norm(x.double() + x1.double(), weight, bias), VALUES)
    assert_close(y1, norm(x.double() + x1.double(), weight1, bias1), VALUES)
    assert total.dtype == dtype
    scale = normal(2, 3, seed=9)
    y = function(x, weight, bias, eps=1e-3, rowscale=scale)
    assert_close(y, norm(x.double() * scale.double()[..., None], weight, bias), VALUES)


def test_dropout_before_the_norm(ops: SimpleNamespace) -> None:
    torch.manual_seed(0)
    x, norm = torch.ones(64, 32), ops.RMSNorm(32, dropout_p=0.25)
    _, total = norm(x, prenorm=True)
    assert total.unique().tolist() == [0, pytest.approx(4 / 3)]
    assert 0.2 < (total == 0).float().mean() < 0.3
    assert torch.equal(norm.eval()(x, prenorm=True)[1], x)
    with pytest.raises(NotImplementedError, match="return_dropout_mask is not supported"):
        ops.rms_norm_fn(x, norm.weight, None, return_dropout_mask=True)
    with pytest.raises(ValueError, match="rowscale cannot be used together with x1"):
        ops.layer_norm_fn(x, norm.weight, None, x1=x, rowscale=x[:, 0])


# ── VMamba ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_vmambas_scan(dtype: torch.dtype) -> None:
    arguments = scan_arguments("groups", dtype)
    del arguments["z"]
    expected = tustin.selective_scan(**{name: t.double() for name, t in arguments.items()}, delta_softplus=True)
    order = [arguments[name] for name in ("u", "delta", "A", "B", "C", "D", "delta_bias")]
    wide = torch.promote_types(dtype, torch.float32)
    for oflex, result in ((True, wide), (False, dtype)):
        for backend in (None, "oflex", "core", "mamba", "torch"):
            y = vmamba.selective_scan_fn(*order, True, oflex, backend)
            assert y.dtype == result
            assert_close(y, expected, SCAN)
    assert_close(vmamba.selective_scan_fn(*order), expected, SCAN)
    with pytest.raises(ValueError, match="backend must be one of None, 'oflex', 'core', 'mamba', 'torch', got 'cuda'"):
        vmamba.selective_scan_fn(*order, backend="cuda")
