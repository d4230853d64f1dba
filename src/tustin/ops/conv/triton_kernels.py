"""The short causal convolution with its SiLU, and their gradient, for GPUs.

A program takes one sample, a block of channels and a block of tokens. It stands alone: it reads the K−1 tokens before
its own again, and its gradient computes the K−1 after them again. Short filters are unrolled, and then every token is
in registers once. Token k is counted in the direction of the walk; REVERSE only says where it lies in memory. Offsets
are 64 bits wide, and all is computed in REAL.
"""

import triton
import triton.language as tl

_UNROLLED = tl.constexpr(8)


# ── what a program works on: k is (BLOCK_L, 1), d is (1, BLOCK_D) ────────────────────────────────────────────────────


@triton.jit
def _block(BLOCK_D: tl.constexpr, BLOCK_L: tl.constexpr):
    """The sample, the channels and the tokens of this program."""
    d = tl.program_id(1).to(tl.int64) * BLOCK_D + tl.arange(0, BLOCK_D)[None, :]
    k = tl.program_id(2).to(tl.int64) * BLOCK_L + tl.arange(0, BLOCK_L)[:, None]
    return tl.program_id(0).to(tl.int64), d, k


@triton.jit
def _places(data, strides, d, k, D, L, REVERSE: tl.constexpr):
    """Where the values of tokens k and channels d are, (BLOCK_L, BLOCK_D), and which of them exist."""
    token = L - 1 - k if REVERSE else k
    return data + d * strides[1] + token * strides[2], (k >= 0) & (k < L) & (d < D)


@triton.jit
def _read(data, strides, d, k, D, L, REVERSE: tl.constexpr, REAL: tl.constexpr):
    """The values of tokens k and channels d; zero outside the sequence."""
    places, exist = _places(data, strides, d, k, D, L, REVERSE)
    return tl.load(places, mask=exist, other=0).to(REAL)


@triton.jit
def _write(data, strides, d, k, D, L, values, REVERSE: tl.constexpr):
    places, exist = _places(data, strides, d, k, D, L, REVERSE)
    tl.store(places, values.to(data.dtype.element_ty), mask=exist)


@triton.jit
def _tap(weight, strides, j, d, D, REAL: tl.constexpr):
    """w_j of every channel, (1, BLOCK_D)."""
    return tl.load(weight + d * strides[0] + j * strides[1], mask=d < D, other=0).to(REAL)


@triton.jit
def _convolve(x, weight, bias, strides, ahead, d, k, D, L, K: tl.constexpr, REVERSE: tl.constexpr, REAL: tl.constexpr):
    """bias + Σ_j w_j x_{k+ahead−K+1+j}; the strides are those of x, weight and bias."""
    sums = tl.zeros([k.shape[0], d.shape[1]], REAL)
    if bias is not None:
        sums += tl.load(bias + d * strides[2][0], mask=d < D, other=0).to(REAL)
    for j in (tl.static_range if K <= _UNROLLED else range)(K):
        x_j = _read(x, strides[0], d, k + (ahead + j - K + 1), D, L, REVERSE, REAL)
        sums += _tap(weight, strides[1], j, d, D, REAL) * x_j
    return sums


# ── the kernels ──────────────────────────────────────────────────────────────────────────────────────────────────────


@triton.jit
def forward(
    x,
    weight,
    bias,
    out,
    strides,
    out_strides,
    D,
    L,
    K: tl.constexpr,
    SILU: tl.constexpr,
    REVERSE: tl.constexpr,
    REAL: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_L: tl.constexpr,
):
    """out_k = silu(y_k), where y_k = bias + Σ_j w_j x_{k−K+1+j}."""
    batch, d, k = _block(BLOCK_D, BLOCK_L)
    y = _convolve(x + batch * strides[0][0], weight, bias, strides, 0, d, k, D, L, K, REVERSE, REAL)
    if SILU:
        y *= tl.sigmoid(y)
    _write(out + batch * out_strides[0], out_strides, d, k, D, L, y, REVERSE)


@triton.jit
def backward(
    x,
    weight,
    bias,
    d_out,
    d_x,
    partial,
    strides,
    d_out_strides,
    d_x_strides,
    D,
    L,
    K: tl.constexpr,
    SILU: tl.constexpr,
    REVERSE: tl.constexpr,
    REAL: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_L: tl.constexpr,
):
    """With g_k = d_out_k·silu'(y_k): d_x_k = Σ_j w_j g_{k+K−1−j}. Over the tokens of this program alone
    Σ_k g_k x_{k−K+1+j} and Σ_k g_k, into `partial`, (batch · blocks of tokens, K+1, D)."""
    batch, d, k = _block(BLOCK_D, BLOCK_L)
    x += batch * strides[0][0]
    d_out += batch * d_out_strides[0]
    partial += (batch * tl.num_programs(2) + tl.program_id(2)) * (K + 1) * D + d

    d_x_k = tl.zeros([BLOCK_L, BLOCK_D], REAL)
    g = d_x_k
    for j in (tl.static_range if K <= _UNROLLED else range)(K):
        ahead = K - 1 - j
        g = _read(d_out, d_out_strides, d, k + ahead, D, L, REVERSE, REAL)
        if SILU:
            y = _convolve(x, weight, bias, strides, ahead, d, k, D, L, K, REVERSE, REAL)
            s = tl.sigmoid(y)
            g *= s * (1 + y * (1 - s))
        d_x_k += _tap(weight, strides[1], j, d, D, REAL) * g
    _write(d_x + batch * d_x_strides[0], d_x_strides, d, k, D, L, d_x_k, REVERSE)

    # The last g was that of token k itself.
    for j in (tl.static_range if K <= _UNROLLED else range)(K):
        x_j = _read(x, strides[0], d, k + (j - K + 1), D, L, REVERSE, REAL)
        tl.store(partial + j * D, tl.sum(g * x_j, 0, keep_dims=True), mask=d < D)
    tl.store(partial + K * D, tl.sum(g, 0, keep_dims=True), mask=d < D)
