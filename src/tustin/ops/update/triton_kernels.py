"""The next token for GPUs: a step of the scan, blind to the rule, and of the convolution, each with its state in place.

A program takes one sample and a block of channels, and no two programs touch one place. Offsets are 64 bits wide.
"""

import triton
import triton.language as tl

from ..scan.triton_elementary import softplus
from ..scan.triton_tokens import load_A, load_parameter, program_channels, program_states, rule_step, rule_token

_UNROLLED = tl.constexpr(8)


@triton.jit(do_not_specialize=["D", "A_d", "A_n"])
def update_state(
    state,
    u,
    delta,
    A,
    B,
    C,
    D_skip,
    z,
    mix,
    delta_bias,
    out,
    u_strides,
    delta_strides,
    B_strides,
    C_strides,
    z_strides,
    mix_strides,
    out_strides,
    D,
    A_d,
    A_n,
    WEIGHTS: tl.constexpr,
    TOKEN: tl.constexpr,
    STEP: tl.constexpr,
    P: tl.constexpr,
    TAPS: tl.constexpr,
    SOFTPLUS: tl.constexpr,
    N: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_B: tl.constexpr,
    GROUP_C: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """state ← α·state + β·B u, and out = (C·state + D u)·silu(z).

    The state is contiguous, (batch, D, N); for a rule of two samples (batch, D, N, 2), with v of the token before.
    """
    d, exists_d = program_channels(GROUP, BLOCK_D)
    d = d.to(tl.int64)
    n, exists_n = program_states(N)
    exists = exists_n & exists_d
    batch = tl.program_id(1).to(tl.int64)
    u_k = _read(u, u_strides, batch, d, exists_d)
    step = _read(delta, delta_strides, batch, d, exists_d) + load_parameter(delta_bias, d, exists_d)
    if SOFTPLUS:
        step = softplus(step)
    B_k = _read_matrix(B, B_strides, batch, d, n, exists_n, GROUP_B)
    C_k = _read_matrix(C, C_strides, batch, d, n, exists_n, GROUP_C)
    weights = WEIGHTS(load_A(A, d, n, exists, A_d, A_n), P)

    places = state + ((batch * D + d) * N + n) * TAPS
    h = tl.load(places, mask=exists, other=0.0).to(tl.float32)
    past = h
    if TAPS == 2:
        past = tl.load(places + 1, mask=exists, other=0.0).to(tl.float32)
        tl.store(places + 1, (u_k * B_k).to(state.dtype.element_ty), mask=exists)
    mix_k = _read(mix, mix_strides, batch, d, exists_d) if mix is not None else u_k
    token = rule_token(TOKEN, step, u_k, mix_k, mix is not None, P)
    h = rule_step(STEP, token, weights, h, B_k, past, TAPS, P)[0]
    tl.store(places, h.to(state.dtype.element_ty), mask=exists)
    y = tl.sum(h * C_k, 0, keep_dims=True) + load_parameter(D_skip, d, exists_d) * u_k
    if z is not None:
        z_k = _read(z, z_strides, batch, d, exists_d)
        y *= z_k * tl.sigmoid(z_k)
    tl.store(out + batch * out_strides[0] + d * out_strides[1], y.to(out.dtype.element_ty), mask=exists_d)


@triton.jit
def _read(data, strides, batch, d, exists):
    return tl.load(data + batch * strides[0] + d * strides[1], mask=exists, other=0.0).to(tl.float32)


@triton.jit
def _read_matrix(data, strides, batch, d, n, exists, GROUP: tl.constexpr):
    """B or C of the group to which all these channels belong, (N, 1)."""
    group = tl.min(d, 1, keep_dims=True) // GROUP
    places = data + batch * strides[0] + group * strides[1] + n.to(tl.int64) * strides[2]
    return tl.load(places, mask=exists, other=0.0).to(tl.float32)


@triton.jit
def update_conv(
    state,
    x,
    weight,
    bias,
    out,
    state_strides,
    x_strides,
    weight_strides,
    bias_strides,
    out_strides,
    D,
    L,
    S,
    K: tl.constexpr,
    SILU: tl.constexpr,
    REAL: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """out_k = silu(bias + Σ_j w_j sample_{S+k−K+1+j}), where the samples are those of state and then those of x.

    A thread has all samples of its channels, so none is overwritten before it is read.
    """
    d = tl.program_id(0).to(tl.int64) * BLOCK_D + tl.arange(0, BLOCK_D)
    batch, exists = tl.program_id(1).to(tl.int64), d < D
    state += batch * state_strides[0] + d * state_strides[1]
    x += batch * x_strides[0] + d * x_strides[1]
    out += batch * out_strides[0] + d * out_strides[1]
    for k in range(L):
        y = tl.zeros([BLOCK_D], REAL)
        if bias is not None:
            y += tl.load(bias + d * bias_strides[0], mask=exists, other=0).to(REAL)
        for j in (tl.static_range if K <= _UNROLLED else range)(K):
            w = tl.load(weight + d * weight_strides[0] + j * weight_strides[1], mask=exists, other=0).to(REAL)
            y += w * _sample(state, x, state_strides, x_strides, S + k - K + 1 + j, S, exists, REAL)
        if SILU:
            y *= tl.sigmoid(y)
        tl.store(out + k * out_strides[2], y.to(out.dtype.element_ty), mask=exists)
    for i in range(S):
        newer = _sample(state, x, state_strides, x_strides, i + L, S, exists, REAL)
        tl.store(state + i * state_strides[2], newer.to(state.dtype.element_ty), mask=exists)


@triton.jit
def _sample(state, x, state_strides, x_strides, i, S, exists, REAL: tl.constexpr):
    """Sample i, of the state or, from S on, of x."""
    i += tl.zeros([1], tl.int64)  # the interpreter cannot broadcast a scalar
    kept = tl.load(state + i * state_strides[2], mask=exists & (i < S), other=0).to(REAL)
    return kept + tl.load(x + (i - S) * x_strides[2], mask=exists & (i >= S), other=0).to(REAL)
