"""The selective scan and its gradient for GPUs, blind to the method, which comes as jit functions.

A program walks one segment of the tokens of one sample, with the states of a block of channels in registers, (N,
channels). Before each chunk of CHUNK tokens the forward pass keeps the state; from it the backward pass recomputes the
states inside the chunk, again in registers. Nothing of size (batch, L, D, N) ever exists.

Where samples and channels alone fill a GPU, the segment is the whole sequence. Otherwise there are several, and

    1. every segment by itself: what it makes of a zero state, and the product of its α     (end_of_segment)
    2. the segments one after the other: the state with which each begins                   (join_segments)
    3. every segment by itself, from there                                                  (forward)

and so in the other direction for the gradient of the state (start_of_segment, join_segments, backward).

No two programs write to one place, and no sum depends on which program runs first: where many contribute, each writes a
partial sum of its own. Token k is counted in the direction of the walk; REVERSE only says where it lies in memory.
Beyond the last token Δ = 0, which leaves the state alone. Offsets are 64 bits wide.
"""

import triton
import triton.language as tl

from .triton_methods import softplus

_AS_GOOD_AS_ZERO = tl.constexpr(1e-18)  # as A, but it has an inverse


# ── what a program works on: n is (BLOCK_N, 1), d is (1, BLOCK_D) ────────────────────────────────────────────────────


@triton.jit
def _channels(GROUP: tl.constexpr, BLOCK_D: tl.constexpr):
    """The channels of this program, and which of them exist: a block ends where a group of B or C does."""
    blocks: tl.constexpr = (GROUP + BLOCK_D - 1) // BLOCK_D
    block = tl.program_id(0).to(tl.int64)
    inside = block % blocks * BLOCK_D + tl.arange(0, BLOCK_D)[None, :]
    return block // blocks * GROUP + inside, inside < GROUP


@triton.jit
def _states(N: tl.constexpr):
    n = tl.arange(0, triton.next_power_of_2(N))[:, None]
    return n, n < N


@triton.jit
def _load_A(A, d, n, exists, N: tl.constexpr):
    """A and its inverse."""
    a = tl.load(A + d * N + n, mask=exists, other=-1.0)
    a = tl.where(tl.abs(a) < _AS_GOOD_AS_ZERO, -_AS_GOOD_AS_ZERO, a)
    return a, 1 / a


@triton.jit
def _load_parameter(data, d, exists):
    """One number per channel; zero where it is not given."""
    return tl.zeros(d.shape, tl.float32) if data is None else tl.load(data + d, mask=exists, other=0.0)


@triton.jit
def _matrix(data, strides, batch, d, n, exists, GROUP: tl.constexpr):
    """What `_entries` needs of B or C: itself where it is constant (GROUP is 0), else where its tokens begin."""
    if GROUP == 0:
        return tl.load(data + d * strides[0] + n * strides[1], mask=exists, other=0.0).to(tl.float32)
    first = tl.min(d, 1, keep_dims=True)
    return data + batch * strides[0] + first // GROUP * strides[1] + n * strides[2]


# ── what a token brings ──────────────────────────────────────────────────────────────────────────────────────────────


@triton.jit
def _place(k, L, stride, REVERSE: tl.constexpr):
    """The offset of token k."""
    return (L - 1 - k if REVERSE else k) * stride


@triton.jit
def _is_token(k, L):
    """Whether k comes before the end, (1, 1): the interpreter cannot broadcast a scalar."""
    return tl.full([1, 1], k, tl.int64) < L


@triton.jit
def _read(places, k, L, stride, exists, REVERSE: tl.constexpr):
    """The values of token k; zero beyond the last."""
    return tl.load(places + _place(k, L, stride, REVERSE), mask=exists & _is_token(k, L), other=0.0).to(tl.float32)


@triton.jit
def _write(places, k, L, stride, exists, values, REVERSE: tl.constexpr):
    tl.store(places + _place(k, L, stride, REVERSE), values.to(places.dtype.element_ty), mask=exists & _is_token(k, L))


@triton.jit
def _entries(matrix, strides, k, L, exists, REVERSE: tl.constexpr, GROUP: tl.constexpr):
    """B or C of token k: (BLOCK_N, 1), or (BLOCK_N, BLOCK_D) where it is constant."""
    return matrix if GROUP == 0 else _read(matrix, k, L, strides[3], exists, REVERSE)


@triton.jit
def _step_size(raw, k, L, SOFTPLUS: tl.constexpr):
    """Δ of token k."""
    return tl.where(_is_token(k, L), softplus(raw) if SOFTPLUS else raw, 0.0)


# ── forward ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@triton.jit(do_not_specialize=["L", "segment_length"])
def forward(
    u,
    delta,
    A,
    B,
    C,
    D_skip,
    z,
    delta_bias,
    start,
    out,
    last_state,
    chunk_states,
    u_strides,
    delta_strides,
    B_strides,
    C_strides,
    z_strides,
    out_strides,
    D,
    L,
    segment_length,
    STEP: tl.constexpr,
    SOFTPLUS: tl.constexpr,
    REVERSE: tl.constexpr,
    N: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_B: tl.constexpr,
    GROUP_C: tl.constexpr,
    BLOCK_D: tl.constexpr,
    CHUNK: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """Output, last state, and the state before each chunk.

    `start` (batch, segments, N, D) are the states with which the segments begin; UNROLL tokens are loaded at once, so
    that the memory is asked for the next while the first are computed.
    """
    d, exists_d = _channels(GROUP, BLOCK_D)
    n, exists_n = _states(N)
    exists = exists_n & exists_d
    segment, batch = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    L = L.to(tl.int64)
    u += batch * u_strides[0] + d * u_strides[1]
    delta += batch * delta_strides[0] + d * delta_strides[1]
    out += batch * out_strides[0] + d * out_strides[1]
    if z is not None:
        z += batch * z_strides[0] + d * z_strides[1]
    a, inverse_a = _load_A(A, d, n, exists, N)
    skip, bias = _load_parameter(D_skip, d, exists_d), _load_parameter(delta_bias, d, exists_d)
    B, C = _matrix(B, B_strides, batch, d, n, exists, GROUP_B), _matrix(C, C_strides, batch, d, n, exists, GROUP_C)

    h = tl.zeros(a.shape, tl.float32)
    if start is not None:
        h = tl.load(start + ((batch * tl.num_programs(1) + segment) * N + n) * D + d, mask=exists, other=0.0)
    first = segment * segment_length
    for k0 in range(first, tl.minimum(first + segment_length, L), UNROLL):
        if chunk_states is not None:
            if k0 % CHUNK == 0:
                chunk = batch * tl.cdiv(L, CHUNK) + k0 // CHUNK
                tl.store(chunk_states + (chunk * N + n) * D + d, h, mask=exists)
        tokens = ()
        for j in tl.static_range(UNROLL):
            u_k = _read(u, k0 + j, L, u_strides[2], exists_d, REVERSE)
            raw = _read(delta, k0 + j, L, delta_strides[2], exists_d, REVERSE)
            z_k = _read(z, k0 + j, L, z_strides[2], exists_d, REVERSE) if z is not None else 0.0
            tokens = tokens + ((u_k, raw, z_k),)
        results = ()
        for j in tl.static_range(UNROLL):
            u_k, raw, z_k = tokens[j]
            step = _step_size(raw + bias, k0 + j, L, SOFTPLUS)
            growth, beta = STEP(step, a, inverse_a)
            h += growth * h + beta * (u_k * _entries(B, B_strides, k0 + j, L, exists_n, REVERSE, GROUP_B))
            y = tl.sum(h * _entries(C, C_strides, k0 + j, L, exists_n, REVERSE, GROUP_C), 0, keep_dims=True)
            y += skip * u_k
            if z is not None:
                y *= z_k * tl.sigmoid(z_k)
            results = results + (y,)
        for j in tl.static_range(UNROLL):
            _write(out, k0 + j, L, out_strides[2], exists_d, results[j], REVERSE)
    if segment == tl.num_programs(1) - 1:
        tl.store(last_state + (batch * D + d) * N + n, h, mask=exists)
