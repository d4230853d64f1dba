"""The selective scan and its gradient for GPUs, blind to the rule, which comes as jit functions.

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
Beyond the last token Δ = 0, which leaves the state alone. Offsets are 64 bits wide, but tokens are counted in a type
POSITION that is narrower where that is enough: it saves many registers.
"""

import triton
import triton.language as tl

from .triton_discretizations import softplus

# What the compiler must not know: that these are multiples of 16. It would load and store states four at a time, and so
# hold them, and all that is computed with them, in an order that suits nothing else.
_NOT_SPECIALIZED = ["D", "L", "segment_length", "A_d", "A_n", "state_d", "state_n"]
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
def _load_A(A, d, n, exists, stride_d, stride_n):
    """A and its inverse."""
    a = tl.load(A + d * stride_d + n * stride_n, mask=exists, other=-1.0)
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
    return tl.full([1, 1], k, L.dtype) < L


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
    """Δ of token k, from delta with its bias."""
    return tl.where(_is_token(k, L), softplus(raw) if SOFTPLUS else raw, 0.0)


@triton.jit
def _advanced(h, growth, beta, u, B):
    """h_k = α·h_{k−1} + β·B u."""
    return h + (growth * h + beta * (u * B))


# ── forward ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@triton.jit(do_not_specialize=_NOT_SPECIALIZED)
def end_of_segment(
    u,
    delta,
    A,
    B,
    delta_bias,
    ends,
    products,
    u_strides,
    delta_strides,
    B_strides,
    D,
    L,
    segment_length,
    A_d,
    A_n,
    STEP: tl.constexpr,
    SOFTPLUS: tl.constexpr,
    REVERSE: tl.constexpr,
    POSITION: tl.constexpr,
    N: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_B: tl.constexpr,
    BLOCK_D: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """What each segment makes of a zero state, and of a one without input: (batch, segments, N, D) both."""
    d, exists_d = _channels(GROUP, BLOCK_D)
    n, exists_n = _states(N)
    exists = exists_n & exists_d
    segment, batch = tl.program_id(1).to(POSITION), tl.program_id(2).to(tl.int64)
    L = L.to(POSITION)
    u += batch * u_strides[0] + d * u_strides[1]
    delta += batch * delta_strides[0] + d * delta_strides[1]
    B = _matrix(B, B_strides, batch, d, n, exists, GROUP_B)
    bias = _load_parameter(delta_bias, d, exists_d)
    a, inverse_a = _load_A(A, d, n, exists, A_d, A_n)

    h, product = tl.zeros(a.shape, tl.float32), tl.full(a.shape, 1.0, tl.float32)
    first = segment * segment_length
    for k0 in range(first, tl.minimum(first + segment_length, L), UNROLL):
        for j in tl.static_range(UNROLL):
            u_k = _read(u, k0 + j, L, u_strides[2], exists_d, REVERSE)
            raw = _read(delta, k0 + j, L, delta_strides[2], exists_d, REVERSE) + bias
            B_k = _entries(B, B_strides, k0 + j, L, exists_n, REVERSE, GROUP_B)
            growth, beta = STEP(_step_size(raw, k0 + j, L, SOFTPLUS), a, inverse_a)
            h = _advanced(h, growth, beta, u_k, B_k)
            product += growth * product
    place = ((batch * tl.num_programs(1) + segment) * N + n) * D + d
    tl.store(ends + place, h, mask=exists)
    tl.store(products + place, product, mask=exists)


@triton.jit
def join_segments(start, ends, products, size, SEGMENTS: tl.constexpr, BACKWARDS: tl.constexpr, BLOCK: tl.constexpr):
    """Replaces what each segment makes of zero, (batch, segments, size), by the state with which it begins."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    batch, exists = tl.program_id(1).to(tl.int64), i < size
    h = tl.zeros([BLOCK], tl.float32)
    if start is not None:
        h = tl.load(start + batch * size + i, mask=exists)
    for s in range(SEGMENTS):
        place = (batch * SEGMENTS + (SEGMENTS - 1 - s if BACKWARDS else s)) * size + i
        end = tl.load(ends + place, mask=exists)
        product = tl.load(products + place, mask=exists)
        tl.store(ends + place, h, mask=exists)
        h = product * h + end


@triton.jit(do_not_specialize=_NOT_SPECIALIZED)
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
    A_d,
    A_n,
    state_d,
    state_n,
    STEP: tl.constexpr,
    SOFTPLUS: tl.constexpr,
    REVERSE: tl.constexpr,
    POSITION: tl.constexpr,
    N: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_B: tl.constexpr,
    GROUP_C: tl.constexpr,
    BLOCK_D: tl.constexpr,
    CHUNK: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """Output, last state (batch, D, N), and the state before each chunk (batch, chunks, N, D).

    `start` (batch, segments, N, D) are the states with which the segments begin. UNROLL tokens are loaded at once, so
    that the memory is at work on all of them.
    """
    d, exists_d = _channels(GROUP, BLOCK_D)
    n, exists_n = _states(N)
    exists = exists_n & exists_d
    segment, batch = tl.program_id(1).to(POSITION), tl.program_id(2).to(tl.int64)
    L = L.to(POSITION)
    u += batch * u_strides[0] + d * u_strides[1]
    delta += batch * delta_strides[0] + d * delta_strides[1]
    out += batch * out_strides[0] + d * out_strides[1]
    if z is not None:
        z += batch * z_strides[0] + d * z_strides[1]
    B = _matrix(B, B_strides, batch, d, n, exists, GROUP_B)
    C = _matrix(C, C_strides, batch, d, n, exists, GROUP_C)
    skip, bias = _load_parameter(D_skip, d, exists_d), _load_parameter(delta_bias, d, exists_d)
    a, inverse_a = _load_A(A, d, n, exists, A_d, A_n)

    h = tl.zeros(a.shape, tl.float32)
    if start is not None:
        h = tl.load(start + ((batch * tl.num_programs(1) + segment) * N + n) * D + d, mask=exists, other=0.0)
    first = segment * segment_length
    for k0 in range(first, tl.minimum(first + segment_length, L), UNROLL):
        if chunk_states is not None and k0 % CHUNK == 0:
            place = ((batch * tl.cdiv(L, CHUNK) + k0 // CHUNK) * N + n) * D + d
            tl.store(chunk_states + place, h, mask=exists)
        tokens = ()
        for j in tl.static_range(UNROLL):
            u_k = _read(u, k0 + j, L, u_strides[2], exists_d, REVERSE)
            raw = _read(delta, k0 + j, L, delta_strides[2], exists_d, REVERSE) + bias
            z_k = _read(z, k0 + j, L, z_strides[2], exists_d, REVERSE) if z is not None else u_k
            tokens += ((u_k, raw, z_k),)
        results = ()
        for j in tl.static_range(UNROLL):
            u_k, raw, z_k = tokens[j]
            B_k = _entries(B, B_strides, k0 + j, L, exists_n, REVERSE, GROUP_B)
            C_k = _entries(C, C_strides, k0 + j, L, exists_n, REVERSE, GROUP_C)
            growth, beta = STEP(_step_size(raw, k0 + j, L, SOFTPLUS), a, inverse_a)
            h = _advanced(h, growth, beta, u_k, B_k)
            y = tl.sum(h * C_k, 0, keep_dims=True) + skip * u_k
            if z is not None:
                y *= z_k * tl.sigmoid(z_k)
            results += (y,)
        for j in tl.static_range(UNROLL):
            _write(out, k0 + j, L, out_strides[2], exists_d, results[j], REVERSE)
    if segment == tl.num_programs(1) - 1:
        tl.store(last_state + batch * D * N + d * state_d + n * state_n, h, mask=exists)


# ── backward ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@triton.jit(do_not_specialize=_NOT_SPECIALIZED)
def start_of_segment(
    d_out,
    delta,
    A,
    C,
    z,
    delta_bias,
    starts,
    products,
    d_out_strides,
    delta_strides,
    C_strides,
    z_strides,
    D,
    L,
    segment_length,
    A_d,
    A_n,
    STEP: tl.constexpr,
    SOFTPLUS: tl.constexpr,
    REVERSE: tl.constexpr,
    POSITION: tl.constexpr,
    N: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_C: tl.constexpr,
    BLOCK_D: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """The gradient of the state before each segment, were that of the state after it zero, and the product of its α."""
    d, exists_d = _channels(GROUP, BLOCK_D)
    n, exists_n = _states(N)
    exists = exists_n & exists_d
    segment, batch = tl.program_id(1).to(POSITION), tl.program_id(2).to(tl.int64)
    L = L.to(POSITION)
    d_out += batch * d_out_strides[0] + d * d_out_strides[1]
    delta += batch * delta_strides[0] + d * delta_strides[1]
    if z is not None:
        z += batch * z_strides[0] + d * z_strides[1]
    C = _matrix(C, C_strides, batch, d, n, exists, GROUP_C)
    bias = _load_parameter(delta_bias, d, exists_d)
    a, inverse_a = _load_A(A, d, n, exists, A_d, A_n)

    g, product = tl.zeros(a.shape, tl.float32), tl.full(a.shape, 1.0, tl.float32)
    first = segment * segment_length
    last = tl.minimum(first + segment_length, L) - 1
    for back in range(0, last + 1 - first, UNROLL):
        for j in tl.static_range(UNROLL - 1, -1, -1):
            k = first + (last - first - back) // UNROLL * UNROLL + j
            raw = _read(delta, k, L, delta_strides[2], exists_d, REVERSE) + bias
            d_y = _read(d_out, k, L, d_out_strides[2], exists_d, REVERSE)
            if z is not None:
                z_k = _read(z, k, L, z_strides[2], exists_d, REVERSE)
                d_y *= z_k * tl.sigmoid(z_k)
            g += d_y * _entries(C, C_strides, k, L, exists_n, REVERSE, GROUP_C)
            growth, _ = STEP(_step_size(raw, k, L, SOFTPLUS), a, inverse_a)
            g += growth * g
            product += growth * product
    place = ((batch * tl.num_programs(1) + segment) * N + n) * D + d
    tl.store(starts + place, g, mask=exists)
    tl.store(products + place, product, mask=exists)


@triton.jit
def _replaced(values, index, value):
    """The tuple with its entry at a run-time index replaced."""
    new = ()
    for i in tl.static_range(len(values)):
        new += (tl.where(index == i, value, values[i]),)
    return new


@triton.jit
def _chosen(values, index):
    """The entry of a tuple at a run-time index."""
    value = values[0]
    for i in tl.static_range(1, len(values)):
        value = tl.where(index == i, values[i], value)
    return value


@triton.jit(do_not_specialize=_NOT_SPECIALIZED)
def backward(
    d_out,
    u,
    delta,
    A,
    B,
    C,
    D_skip,
    z,
    delta_bias,
    chunk_states,
    d_end,
    d_u,
    d_delta,
    d_z,
    d_A,
    d_B,
    d_C,
    d_D,
    d_bias,
    d_start,
    d_out_strides,
    u_strides,
    delta_strides,
    B_strides,
    C_strides,
    z_strides,
    d_u_strides,
    d_delta_strides,
    d_z_strides,
    D,
    L,
    segment_length,
    A_d,
    A_n,
    state_d,
    state_n,
    STEP: tl.constexpr,
    SLOPES: tl.constexpr,
    SOFTPLUS: tl.constexpr,
    REVERSE: tl.constexpr,
    POSITION: tl.constexpr,
    N: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_B: tl.constexpr,
    GROUP_C: tl.constexpr,
    BLOCK_D: tl.constexpr,
    CHUNK: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """Every gradient, by the recurrence g_k = C_k d_y_k + α_{k+1}·g_{k+1} of the gradient of the state.

    `d_end` (batch, segments, N, D) is that of the state after each segment, `d_start` (batch, D, N) of the one before
    the first. Sums over tokens are d_A (batch, segments, N, D), d_D and d_bias (batch, segments, D), and so are d_B and
    d_C where the matrix is constant; else those are sums over the channels of a program, (batch, blocks, L, N).

    Only UNROLL states at a time are needed one by one. So the states of a chunk are computed twice: first to keep every
    UNROLL-th, then, from the last group of tokens to the first, the ones between.
    """
    d, exists_d = _channels(GROUP, BLOCK_D)
    n, exists_n = _states(N)
    exists = exists_n & exists_d
    segment, batch = tl.program_id(1).to(POSITION), tl.program_id(2).to(tl.int64)
    L = L.to(POSITION)
    d_out += batch * d_out_strides[0] + d * d_out_strides[1]
    u += batch * u_strides[0] + d * u_strides[1]
    delta += batch * delta_strides[0] + d * delta_strides[1]
    d_u += batch * d_u_strides[0] + d * d_u_strides[1]
    d_delta += batch * d_delta_strides[0] + d * d_delta_strides[1]
    if z is not None:
        z += batch * z_strides[0] + d * z_strides[1]
        d_z += batch * d_z_strides[0] + d * d_z_strides[1]
    B = _matrix(B, B_strides, batch, d, n, exists, GROUP_B)
    C = _matrix(C, C_strides, batch, d, n, exists, GROUP_C)
    skip, bias = _load_parameter(D_skip, d, exists_d), _load_parameter(delta_bias, d, exists_d)
    a, inverse_a = _load_A(A, d, n, exists, A_d, A_n)
    own_states = ((batch * tl.num_programs(1) + segment) * N + n) * D + d
    own_channels = (batch * tl.num_programs(1) + segment) * D + d
    own_tokens = (batch * tl.num_programs(0) + tl.program_id(0)) * L * N + n

    g = tl.zeros(a.shape, tl.float32)
    if d_end is not None:
        g = tl.load(d_end + own_states, mask=exists, other=0.0)
    sum_A = tl.zeros(a.shape, tl.float32)
    sum_B = tl.zeros(a.shape, tl.float32)
    sum_C = tl.zeros(a.shape, tl.float32)
    sum_D = tl.zeros(d.shape, tl.float32)
    sum_bias = tl.zeros(d.shape, tl.float32)
    first = segment * segment_length
    last = tl.minimum(first + segment_length, L) - 1
    for back in range(0, last + 1 - first, CHUNK):
        k0 = first + (last - first - back) // CHUNK * CHUNK
        place = ((batch * tl.cdiv(L, CHUNK) + k0 // CHUNK) * N + n) * D + d
        h = tl.load(chunk_states + place, mask=exists, other=0.0)
        kept = (h,)
        for _ in tl.static_range(1, CHUNK // UNROLL):
            kept += (h,)
        groups = tl.cdiv(tl.minimum(CHUNK, last + 1 - k0), UNROLL)
        for group in range(1, groups):
            for j in tl.static_range(UNROLL):
                k = k0 + (group - 1) * UNROLL + j
                u_k = _read(u, k, L, u_strides[2], exists_d, REVERSE)
                raw = _read(delta, k, L, delta_strides[2], exists_d, REVERSE) + bias
                growth, beta = STEP(_step_size(raw, k, L, SOFTPLUS), a, inverse_a)
                h = _advanced(h, growth, beta, u_k, _entries(B, B_strides, k, L, exists_n, REVERSE, GROUP_B))
            kept = _replaced(kept, group, h)

        for back_group in range(groups):
            group = groups - 1 - back_group
            k1 = k0 + group * UNROLL  # its first token
            states = (_chosen(kept, group),)
            tokens = ()
            for j in tl.static_range(UNROLL):
                u_k = _read(u, k1 + j, L, u_strides[2], exists_d, REVERSE)
                raw = _read(delta, k1 + j, L, delta_strides[2], exists_d, REVERSE) + bias
                step = _step_size(raw, k1 + j, L, SOFTPLUS)
                growth, beta = STEP(step, a, inverse_a)
                B_k = _entries(B, B_strides, k1 + j, L, exists_n, REVERSE, GROUP_B)
                states += (_advanced(states[j], growth, beta, u_k, B_k),)
                tokens += ((u_k, raw, step),)

            for j in tl.static_range(UNROLL - 1, -1, -1):
                k = k1 + j
                u_k, raw, step = tokens[j]
                before, after = states[j], states[j + 1]
                B_k = _entries(B, B_strides, k, L, exists_n, REVERSE, GROUP_B)
                C_k = _entries(C, C_strides, k, L, exists_n, REVERSE, GROUP_C)
                d_y = _read(d_out, k, L, d_out_strides[2], exists_d, REVERSE)
                if z is not None:  # out = y·z·s with s = sigmoid(z)
                    z_k = _read(z, k, L, z_strides[2], exists_d, REVERSE)
                    s = tl.sigmoid(z_k)
                    y = tl.sum(after * C_k, 0, keep_dims=True) + skip * u_k
                    _write(d_z, k, L, d_z_strides[2], exists_d, d_y * y * (s * (1 + z_k * (1 - s))), REVERSE)
                    d_y *= z_k * s

                g += d_y * C_k
                growth, alpha_z, beta, beta_A, beta_delta = SLOPES(step, a, inverse_a)
                d_v, d_alpha_z, d_beta = g * beta, g * before * alpha_z, g * (u_k * B_k)
                g += growth * g
                sum_A += d_alpha_z * step + d_beta * beta_A
                sum_D += d_y * u_k
                d_u_k = tl.sum(d_v * B_k, 0, keep_dims=True) + skip * d_y
                d_step = tl.sum(d_alpha_z * a + d_beta * beta_delta, 0, keep_dims=True)
                if SOFTPLUS:
                    d_step *= tl.where(raw > 20, 1.0, tl.sigmoid(raw))
                sum_bias += tl.where(_is_token(k, L), d_step, 0.0)
                _write(d_u, k, L, d_u_strides[2], exists_d, d_u_k, REVERSE)
                _write(d_delta, k, L, d_delta_strides[2], exists_d, d_step, REVERSE)

                if GROUP_B == 0:
                    sum_B += d_v * u_k
                else:
                    _write(d_B + own_tokens, k, L, N, exists_n, tl.sum(d_v * u_k, 1, keep_dims=True), REVERSE)
                if GROUP_C == 0:
                    sum_C += after * d_y
                else:
                    _write(d_C + own_tokens, k, L, N, exists_n, tl.sum(after * d_y, 1, keep_dims=True), REVERSE)

    tl.store(d_A + own_states, sum_A, mask=exists)
    tl.store(d_D + own_channels, sum_D, mask=exists_d)
    tl.store(d_bias + own_channels, sum_bias, mask=exists_d)
    if GROUP_B == 0:
        tl.store(d_B + own_states, sum_B, mask=exists)
    if GROUP_C == 0:
        tl.store(d_C + own_states, sum_C, mask=exists)
    if segment == 0:
        tl.store(d_start + batch * D * N + d * state_d + n * state_n, g, mask=exists)
