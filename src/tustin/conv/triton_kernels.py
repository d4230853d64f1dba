"""The short causal convolution with its SiLU, and their gradient, for GPUs.

A program takes one sample, a block of channels and a block of tokens. It stands alone: it reads the K−1 tokens before
its own again, and its gradient computes the K−1 after them again; those are in the cache. Token k is counted in the
direction of the walk, so `REVERSE` only says where it lies in memory. Offsets are 64 bits wide; REAL is the type of
all arithmetic. Short filters are unrolled, so that every token is loaded once into registers.
"""

import triton
import triton.language as tl

_UNROLLED = tl.constexpr(8)


@triton.jit
def _block(D, BLOCK_D: tl.constexpr, BLOCK_L: tl.constexpr):
    """The sample, the channels and the tokens of this program."""
    d = tl.program_id(1).to(tl.int64) * BLOCK_D + tl.arange(0, BLOCK_D)
    k = tl.program_id(2).to(tl.int64) * BLOCK_L + tl.arange(0, BLOCK_L)
    return tl.program_id(0).to(tl.int64), d, k


@triton.jit
def _places(data, d, k, D, L, stride_d, stride_l, REVERSE: tl.constexpr):
    """Where the values of tokens k and channels d are, (BLOCK_L, BLOCK_D), and which of them exist."""
    token = L - 1 - k if REVERSE else k
    exists = ((k >= 0) & (k < L))[:, None] & (d < D)[None, :]
    return data + token[:, None] * stride_l + d[None, :] * stride_d, exists


@triton.jit
def _read(data, d, k, D, L, stride_d, stride_l, REVERSE: tl.constexpr, REAL: tl.constexpr):
    """The values of tokens k and channels d, zero outside the sequence."""
    places, exists = _places(data, d, k, D, L, stride_d, stride_l, REVERSE)
    return tl.load(places, mask=exists, other=0).to(REAL)


@triton.jit
def _write(data, values, d, k, D, L, stride_d, stride_l, REVERSE: tl.constexpr):
    places, exists = _places(data, d, k, D, L, stride_d, stride_l, REVERSE)
    tl.store(places, values.to(data.dtype.element_ty), mask=exists)


@triton.jit
def _parameter(data, d, D, stride_d, REAL: tl.constexpr):
    """One number per channel, (1, BLOCK_D)."""
    return tl.load(data + d * stride_d, mask=d < D, other=0).to(REAL)[None, :]


@triton.jit
def _convolve(
    x,
    weight,
    bias,
    ahead,
    d,
    k,
    D,
    L,
    x_d,
    x_l,
    w_d,
    w_j,
    b_d,
    K: tl.constexpr,
    REVERSE: tl.constexpr,
    REAL: tl.constexpr,
):
    """bias + Σ_j w_j x_{k+ahead−K+1+j}."""
    sums = tl.zeros([k.shape[0], d.shape[0]], REAL)
    if bias is not None:
        sums += _parameter(bias, d, D, b_d, REAL)
    for j in (tl.static_range if K <= _UNROLLED else range)(K):
        sums += _parameter(weight + j * w_j, d, D, w_d, REAL) * _read(
            x, d, k + (ahead + j - K + 1), D, L, x_d, x_l, REVERSE, REAL
        )
    return sums


@triton.jit
def forward(
    x,
    weight,
    bias,
    out,
    D,
    L,
    x_batch,
    x_d,
    x_l,
    w_d,
    w_j,
    b_d,
    out_batch,
    out_d,
    out_l,
    K: tl.constexpr,
    SILU: tl.constexpr,
    REVERSE: tl.constexpr,
    REAL: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_L: tl.constexpr,
):
    batch, d, k = _block(D, BLOCK_D, BLOCK_L)
    y = _convolve(x + batch * x_batch, weight, bias, 0, d, k, D, L, x_d, x_l, w_d, w_j, b_d, K, REVERSE, REAL)
    if SILU:
        y *= tl.sigmoid(y)
    _write(out + batch * out_batch, y, d, k, D, L, out_d, out_l, REVERSE)


@triton.jit
def _sum_gradient(
    x,
    weight,
    bias,
    d_out,
    ahead,
    d,
    k,
    D,
    L,
    x_d,
    x_l,
    w_d,
    w_j,
    b_d,
    g_d,
    g_l,
    K: tl.constexpr,
    SILU: tl.constexpr,
    REVERSE: tl.constexpr,
    REAL: tl.constexpr,
):
    """g_{k+ahead}, the gradient of the sum before the SiLU; zero outside the sequence."""
    g = _read(d_out, d, k + ahead, D, L, g_d, g_l, REVERSE, REAL)
    if SILU:
        y = _convolve(x, weight, bias, ahead, d, k, D, L, x_d, x_l, w_d, w_j, b_d, K, REVERSE, REAL)
        s = tl.sigmoid(y)
        g *= s * (1 + y * (1 - s))
    return g


@triton.jit
def backward(
    x,
    weight,
    bias,
    d_out,
    d_x,
    partial,
    D,
    L,
    x_batch,
    x_d,
    x_l,
    w_d,
    w_j,
    b_d,
    g_batch,
    g_d,
    g_l,
    d_x_batch,
    d_x_d,
    d_x_l,
    K: tl.constexpr,
    SILU: tl.constexpr,
    REVERSE: tl.constexpr,
    REAL: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_L: tl.constexpr,
):
    """With g_k = d_out_k·silu'(y_k): d_x_k = Σ_j w_j g_{k+K−1−j}, and over the tokens of this program alone
    Σ_k g_k x_{k−K+1+j} and Σ_k g_k into the rows of `partial`, (batch, blocks of tokens, K+1, D)."""
    batch, d, k = _block(D, BLOCK_D, BLOCK_L)
    x += batch * x_batch
    d_out += batch * g_batch
    partial += (batch * tl.num_programs(2) + tl.program_id(2)) * (K + 1) * D
    g = _sum_gradient(x, weight, bias, d_out, 0, d, k, D, L, x_d, x_l, w_d, w_j, b_d, g_d, g_l, K, SILU, REVERSE, REAL)
    sums = _parameter(weight + (K - 1) * w_j, d, D, w_d, REAL) * g
    for ahead in (tl.static_range if K <= _UNROLLED else range)(1, K):
        g_ahead = _sum_gradient(
            x, weight, bias, d_out, ahead, d, k, D, L, x_d, x_l, w_d, w_j, b_d, g_d, g_l, K, SILU, REVERSE, REAL
        )
        sums += _parameter(weight + (K - 1 - ahead) * w_j, d, D, w_d, REAL) * g_ahead
    _write(d_x + batch * d_x_batch, sums, d, k, D, L, d_x_d, d_x_l, REVERSE)

    for j in (tl.static_range if K <= _UNROLLED else range)(K):
        x_j = _read(x, d, k + (j - K + 1), D, L, x_d, x_l, REVERSE, REAL)
        tl.store(partial + j * D + d, tl.sum(g * x_j, 0), mask=d < D)
    tl.store(partial + K * D + d, tl.sum(g, 0), mask=d < D)
