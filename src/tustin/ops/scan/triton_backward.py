"""The gradient of the selective scan for GPUs; triton_forward.py says how the work is cut."""

import triton
import triton.language as tl

from .triton_tokens import (
    NOT_SPECIALIZED,
    advanced,
    entries,
    is_token,
    load_A,
    load_matrix,
    load_parameter,
    program_channels,
    program_states,
    read,
    step_size,
    write,
)


@triton.jit(do_not_specialize=NOT_SPECIALIZED)
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
    d, exists_d = program_channels(GROUP, BLOCK_D)
    n, exists_n = program_states(N)
    exists = exists_n & exists_d
    segment, batch = tl.program_id(1).to(POSITION), tl.program_id(2).to(tl.int64)
    L = L.to(POSITION)
    d_out += batch * d_out_strides[0] + d * d_out_strides[1]
    delta += batch * delta_strides[0] + d * delta_strides[1]
    if z is not None:
        z += batch * z_strides[0] + d * z_strides[1]
    C = load_matrix(C, C_strides, batch, d, n, exists, GROUP_C)
    bias = load_parameter(delta_bias, d, exists_d)
    a, inverse_a = load_A(A, d, n, exists, A_d, A_n)

    g, product = tl.zeros(a.shape, tl.float32), tl.full(a.shape, 1.0, tl.float32)
    first = segment * segment_length
    last = tl.minimum(first + segment_length, L) - 1
    for back in range(0, last + 1 - first, UNROLL):
        for j in tl.static_range(UNROLL - 1, -1, -1):
            k = first + (last - first - back) // UNROLL * UNROLL + j
            raw = read(delta, k, L, delta_strides[2], exists_d, REVERSE) + bias
            d_y = read(d_out, k, L, d_out_strides[2], exists_d, REVERSE)
            if z is not None:
                z_k = read(z, k, L, z_strides[2], exists_d, REVERSE)
                d_y *= z_k * tl.sigmoid(z_k)
            g += d_y * entries(C, C_strides, k, L, exists_n, REVERSE, GROUP_C)
            growth, _ = STEP(step_size(raw, k, L, SOFTPLUS), a, inverse_a)
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


@triton.jit(do_not_specialize=NOT_SPECIALIZED)
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
    d, exists_d = program_channels(GROUP, BLOCK_D)
    n, exists_n = program_states(N)
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
    B = load_matrix(B, B_strides, batch, d, n, exists, GROUP_B)
    C = load_matrix(C, C_strides, batch, d, n, exists, GROUP_C)
    skip, bias = load_parameter(D_skip, d, exists_d), load_parameter(delta_bias, d, exists_d)
    a, inverse_a = load_A(A, d, n, exists, A_d, A_n)
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
                u_k = read(u, k, L, u_strides[2], exists_d, REVERSE)
                raw = read(delta, k, L, delta_strides[2], exists_d, REVERSE) + bias
                growth, beta = STEP(step_size(raw, k, L, SOFTPLUS), a, inverse_a)
                h = advanced(h, growth, beta, u_k, entries(B, B_strides, k, L, exists_n, REVERSE, GROUP_B))
            kept = _replaced(kept, group, h)

        for back_group in range(groups):
            group = groups - 1 - back_group
            k1 = k0 + group * UNROLL  # its first token
            states = (_chosen(kept, group),)
            tokens = ()
            for j in tl.static_range(UNROLL):
                u_k = read(u, k1 + j, L, u_strides[2], exists_d, REVERSE)
                raw = read(delta, k1 + j, L, delta_strides[2], exists_d, REVERSE) + bias
                step = step_size(raw, k1 + j, L, SOFTPLUS)
                growth, beta = STEP(step, a, inverse_a)
                B_k = entries(B, B_strides, k1 + j, L, exists_n, REVERSE, GROUP_B)
                states += (advanced(states[j], growth, beta, u_k, B_k),)
                tokens += ((u_k, raw, step),)

            for j in tl.static_range(UNROLL - 1, -1, -1):
                k = k1 + j
                u_k, raw, step = tokens[j]
                before, after = states[j], states[j + 1]
                B_k = entries(B, B_strides, k, L, exists_n, REVERSE, GROUP_B)
                C_k = entries(C, C_strides, k, L, exists_n, REVERSE, GROUP_C)
                d_y = read(d_out, k, L, d_out_strides[2], exists_d, REVERSE)
                if z is not None:  # out = y·z·s with s = sigmoid(z)
                    z_k = read(z, k, L, z_strides[2], exists_d, REVERSE)
                    s = tl.sigmoid(z_k)
                    y = tl.sum(after * C_k, 0, keep_dims=True) + skip * u_k
                    write(d_z, k, L, d_z_strides[2], exists_d, d_y * y * (s * (1 + z_k * (1 - s))), REVERSE)
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
                sum_bias += tl.where(is_token(k, L), d_step, 0.0)
                write(d_u, k, L, d_u_strides[2], exists_d, d_u_k, REVERSE)
                write(d_delta, k, L, d_delta_strides[2], exists_d, d_step, REVERSE)

                if GROUP_B == 0:
                    sum_B += d_v * u_k
                else:
                    write(d_B + own_tokens, k, L, N, exists_n, tl.sum(d_v * u_k, 1, keep_dims=True), REVERSE)
                if GROUP_C == 0:
                    sum_C += after * d_y
                else:
                    write(d_C + own_tokens, k, L, N, exists_n, tl.sum(after * d_y, 1, keep_dims=True), REVERSE)

    tl.store(d_A + own_states, sum_A, mask=exists)
    tl.store(d_D + own_channels, sum_D, mask=exists_d)
    tl.store(d_bias + own_channels, sum_bias, mask=exists_d)
    if GROUP_B == 0:
        tl.store(d_B + own_states, sum_B, mask=exists)
    if GROUP_C == 0:
        tl.store(d_C + own_states, sum_C, mask=exists)
    if segment == 0:
        tl.store(d_start + batch * D * N + d * state_d + n * state_n, g, mask=exists)
