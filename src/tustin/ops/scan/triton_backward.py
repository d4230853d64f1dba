"""The gradient of the selective scan for GPUs; triton_forward.py says how the work is cut."""

import triton
import triton.language as tl

from .triton_tokens import (
    NOT_SPECIALIZED,
    are_tokens,
    chosen,
    chunk_places,
    entries,
    join_tokens,
    load_A,
    load_parameter,
    program_channels,
    program_group,
    program_states,
    read,
    read_tile,
    replaced,
    rule_step,
    rule_token,
    sample_at,
    split_tokens,
    state_places,
    steps,
    walk,
    walk_matrix,
    walk_sums,
    write,
)


@triton.jit(do_not_specialize=NOT_SPECIALIZED)
def start_of_segment(
    d_out,
    delta,
    A,
    C,
    z,
    mix,
    delta_bias,
    starts,
    products,
    pasts,
    past_products,
    d_out_strides,
    delta_strides,
    C_strides,
    z_strides,
    mix_strides,
    D,
    L,
    segment_length,
    A_d,
    A_n,
    WEIGHTS: tl.constexpr,
    TOKEN: tl.constexpr,
    STEP: tl.constexpr,
    P: tl.constexpr,
    TAPS: tl.constexpr,
    SOFTPLUS: tl.constexpr,
    REVERSE: tl.constexpr,
    POSITION: tl.constexpr,
    N: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_C: tl.constexpr,
    BLOCK_D: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """The gradient of the state before each segment, were that of the state after it zero, and the product of its α.

    For a rule of two samples the same of the v before each segment.
    """
    d, exists_d = program_channels(GROUP, BLOCK_D)
    first_d = program_group(GROUP, BLOCK_D)
    n, exists_n = program_states(N)
    exists = exists_n & exists_d
    segment, batch = tl.program_id(1).to(POSITION), tl.program_id(2).to(tl.int64)
    L = L.to(POSITION)
    d_out = walk(d_out, d_out_strides, batch, d, L, REVERSE)
    delta = walk(delta, delta_strides, batch, d, L, REVERSE)
    if z is not None:
        z = walk(z, z_strides, batch, d, L, REVERSE)
    if mix is not None:
        mix = walk(mix, mix_strides, batch, d, L, REVERSE)
    C = walk_matrix(C, C_strides, batch, first_d, d, n, exists, L, REVERSE, GROUP_C)
    bias = load_parameter(delta_bias, d, exists_d)
    weights = WEIGHTS(load_A(A, d, n, exists, A_d, A_n), P)

    g, product = tl.zeros(exists.shape, tl.float32), tl.full(exists.shape, 1.0, tl.float32)
    zero = tl.zeros(exists.shape, tl.float32)
    d_past, past_product = zero, zero
    first = segment * segment_length
    last = tl.minimum(first + segment_length, L) - 1
    for back in range(0, last + 1 - first, UNROLL):
        k = first + (last - first - back) // UNROLL * UNROLL
        step_k = split_tokens(steps(delta, bias, k, L, exists_d, SOFTPLUS, UNROLL)[1])
        d_y = read_tile(d_out, k, L, exists_d, UNROLL)
        if z is not None:
            gate = read_tile(z, k, L, exists_d, UNROLL)
            d_y *= gate * tl.sigmoid(gate)
        d_y_k = split_tokens(d_y)
        C_k = entries(C, k, L, exists_n, GROUP_C, UNROLL)
        mix_k = read(mix, k, L, exists_d, UNROLL) if mix is not None else d_y_k
        for j in tl.static_range(UNROLL - 1, -1, -1):
            g += d_y_k[j] * C_k[j]
            token = rule_token(TOKEN, step_k[j], d_y_k[j], mix_k[j], mix is not None, P)
            kept = rule_step(STEP, token, weights, g, C_k[j], zero, TAPS, P)[1]
            if TAPS == 2:
                d_past, past_product = kept[1] * g, kept[1] * product
            g += kept[0] * g
            product += kept[0] * product
    place = state_places(d, n, batch * tl.num_programs(1) + segment, D, N)
    tl.store(starts + place, g, mask=exists)
    tl.store(products + place, product, mask=exists)
    if TAPS == 2:
        tl.store(pasts + place, d_past, mask=exists)
        tl.store(past_products + place, past_product, mask=exists)


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
    mix,
    delta_bias,
    chunk_states,
    past_start,
    d_end,
    d_past_end,
    d_u,
    d_delta,
    d_z,
    d_mix,
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
    mix_strides,
    d_u_strides,
    d_delta_strides,
    d_z_strides,
    d_mix_strides,
    D,
    L,
    segment_length,
    A_d,
    A_n,
    state_d,
    state_n,
    WEIGHTS: tl.constexpr,
    TOKEN: tl.constexpr,
    STEP: tl.constexpr,
    ADJOINT: tl.constexpr,
    P: tl.constexpr,
    TAPS: tl.constexpr,
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

    `d_end` (batch, segments, N, D) is that of the state after each segment, `d_start` (parts, batch, D, N) of the one
    before the first. `d_past_end` is that of each segment's last v, as far as later tokens weigh it; `past_start`
    (batch, N, D) is v before the first token.

    Sums over tokens are d_A (batch, segments, N, D), d_D and d_bias (batch, segments, D), and so are d_B and d_C where
    the matrix is constant; else those are sums over the channels of a program, (batch, blocks, L, N).

    Only UNROLL states at a time are needed one by one. So the states of a chunk are computed twice: first to keep every
    UNROLL-th, then, from the last group of tokens to the first, the ones between.
    """
    d, exists_d = program_channels(GROUP, BLOCK_D)
    first_d = program_group(GROUP, BLOCK_D)
    n, exists_n = program_states(N)
    exists = exists_n & exists_d
    segment, batch = tl.program_id(1).to(POSITION), tl.program_id(2).to(tl.int64)
    L = L.to(POSITION)
    d_out = walk(d_out, d_out_strides, batch, d, L, REVERSE)
    u = walk(u, u_strides, batch, d, L, REVERSE)
    delta = walk(delta, delta_strides, batch, d, L, REVERSE)
    d_u = walk(d_u, d_u_strides, batch, d, L, REVERSE)
    d_delta = walk(d_delta, d_delta_strides, batch, d, L, REVERSE)
    if z is not None:
        z = walk(z, z_strides, batch, d, L, REVERSE)
        d_z = walk(d_z, d_z_strides, batch, d, L, REVERSE)
    if mix is not None:
        mix = walk(mix, mix_strides, batch, d, L, REVERSE)
        d_mix = walk(d_mix, d_mix_strides, batch, d, L, REVERSE)
    B = walk_matrix(B, B_strides, batch, first_d, d, n, exists, L, REVERSE, GROUP_B)
    C = walk_matrix(C, C_strides, batch, first_d, d, n, exists, L, REVERSE, GROUP_C)
    skip, bias = load_parameter(D_skip, d, exists_d), load_parameter(delta_bias, d, exists_d)
    weights = WEIGHTS(load_A(A, d, n, exists, A_d, A_n), P)
    own_states = state_places(d, n, batch * tl.num_programs(1) + segment, D, N)
    own_channels = (batch * tl.num_programs(1) + segment) * D + d
    own_d_B, own_d_C = walk_sums(d_B, n, L, N, REVERSE), walk_sums(d_C, n, L, N, REVERSE)

    g = tl.zeros(exists.shape, tl.float32)
    if d_end is not None:
        g = tl.load(d_end + own_states, mask=exists, other=0.0)
    d_past = tl.zeros(exists.shape, tl.float32)
    if d_past_end is not None:
        d_past = tl.load(d_past_end + own_states, mask=exists, other=0.0)
    sum_A = tl.zeros(exists.shape, tl.float32)
    sum_B = tl.zeros(exists.shape, tl.float32)
    sum_C = tl.zeros(exists.shape, tl.float32)
    sum_D, sum_bias = tl.zeros(d.shape, tl.float32), tl.zeros(d.shape, tl.float32)
    first = segment * segment_length
    last = tl.minimum(first + segment_length, L) - 1
    chunk_states += batch * tl.cdiv(L, CHUNK) * N * D
    for back in range(0, last + 1 - first, CHUNK):
        k0 = first + (last - first - back) // CHUNK * CHUNK
        h = tl.load(chunk_states + chunk_places(d, n, k0, L, D, N, CHUNK), mask=exists, other=0.0)
        past = h
        if TAPS == 2:
            past_places = state_places(d, n, batch, D, N)
            past = sample_at(u, B, k0 - 1, past_start, past_places, exists_d, exists_n, GROUP_B)
        saved, pasts = (h,), (past,)
        for _ in tl.static_range(1, CHUNK // UNROLL):
            saved += (h,)
            pasts += (past,)
        groups = tl.cdiv(tl.minimum(CHUNK, last + 1 - k0), UNROLL)
        for group in range(1, groups):
            k = k0 | (group - 1) * UNROLL  # the sum, as in the forward pass
            u_k = read(u, k, L, exists_d, UNROLL)
            step_k = split_tokens(steps(delta, bias, k, L, exists_d, SOFTPLUS, UNROLL)[1])
            B_k = entries(B, k, L, exists_n, GROUP_B, UNROLL)
            mix_k = read(mix, k, L, exists_d, UNROLL) if mix is not None else u_k
            for j in tl.static_range(UNROLL):
                token = rule_token(TOKEN, step_k[j], u_k[j], mix_k[j], mix is not None, P)
                h = rule_step(STEP, token, weights, h, B_k[j], past, TAPS, P)[0]
                if TAPS == 2:
                    past = u_k[j] * B_k[j]
            saved = replaced(saved, group, h)
            if TAPS == 2:
                pasts = replaced(pasts, group, past)

        for back_group in range(groups):
            group = groups - 1 - back_group
            k = k0 | group * UNROLL  # its first token
            u_tile = read_tile(u, k, L, exists_d, UNROLL)
            raw, step = steps(delta, bias, k, L, exists_d, SOFTPLUS, UNROLL)
            u_k, step_k = split_tokens(u_tile), split_tokens(step)
            B_k = entries(B, k, L, exists_n, GROUP_B, UNROLL)
            C_k = entries(C, k, L, exists_n, GROUP_C, UNROLL)
            mix_k = read(mix, k, L, exists_d, UNROLL) if mix is not None else u_k
            states, kept = (chosen(saved, group),), ()
            inputs = (chosen(pasts, group),)  # v of the token before, for each
            for j in tl.static_range(UNROLL):
                token = rule_token(TOKEN, step_k[j], u_k[j], mix_k[j], mix is not None, P)
                after, kept_j = rule_step(STEP, token, weights, states[j], B_k[j], inputs[j], TAPS, P)
                states += (after,)
                kept += (kept_j,)
                inputs += (u_k[j] * B_k[j],)

            d_y = read_tile(d_out, k, L, exists_d, UNROLL)
            if z is not None:  # out = y·z·s with s = sigmoid(z)
                outputs = ()
                for j in tl.static_range(UNROLL):
                    outputs += (tl.sum(states[j + 1] * C_k[j], 0, keep_dims=True) + skip * u_k[j],)
                gate = read_tile(z, k, L, exists_d, UNROLL)
                s = tl.sigmoid(gate)
                d_gate = d_y * join_tokens(outputs) * (s * (1 + gate * (1 - s)))
                write(d_z, k, L, exists_d, d_gate)
                d_y *= gate * s
            sum_D += tl.sum(d_y * u_tile, 2)
            d_y_k = split_tokens(d_y)

            d_u_k, d_step_k, d_mix_k, d_B_k, d_C_k = (), (), (), (), ()  # from the last token to the first
            for j in tl.static_range(UNROLL - 1, -1, -1):
                before, after = states[j], states[j + 1]
                token = rule_token(TOKEN, step_k[j], u_k[j], mix_k[j], mix is not None, P)
                g += d_y_k[j] * C_k[j]
                if TAPS == 2:
                    found = ADJOINT(token, weights, kept[j], before, after, B_k[j], g, P, inputs[j])
                    own = kept[j][1] * g
                else:
                    found = ADJOINT(token, weights, kept[j], before, after, B_k[j], g, P)
                g, along, push, product = found[0], found[2], found[3], found[4]
                sum_A += found[1]
                if TAPS == 2:
                    product += d_past
                    d_past = own if d_past_end is None else tl.where(k + j < L, own, d_past)
                if mix is not None:
                    d_mix_k = (step_k[j] * tl.sum(found[5], 0, keep_dims=True),) + d_mix_k  # noqa: RUF005
                d_step = tl.sum(along, 0, keep_dims=True)
                if push is not None:
                    d_step += token[2] * tl.sum(push * B_k[j], 0, keep_dims=True)
                d_step_k = (d_step,) + d_step_k  # noqa: RUF005, Triton knows no star
                d_u_k = (token[1] * tl.sum(product * B_k[j], 0, keep_dims=True) + skip * d_y_k[j],) + d_u_k  # noqa: RUF005
                if GROUP_B == 0:
                    sum_B += product * token[0]
                else:
                    d_B_k = (tl.sum(product * token[0], 1, keep_dims=True),) + d_B_k  # noqa: RUF005
                if GROUP_C == 0:
                    sum_C += after * d_y_k[j]
                else:
                    d_C_k = (tl.sum(after * d_y_k[j], 1, keep_dims=True),) + d_C_k  # noqa: RUF005

            d_delta_tile = join_tokens(d_step_k)
            if SOFTPLUS:
                d_delta_tile *= tl.where(raw > 20, 1.0, tl.sigmoid(raw))
            sum_bias += tl.sum(tl.where(are_tokens(k, L, UNROLL), d_delta_tile, 0.0), 2)
            write(d_delta, k, L, exists_d, d_delta_tile)
            write(d_u, k, L, exists_d, join_tokens(d_u_k))
            if mix is not None:
                write(d_mix, k, L, exists_d, join_tokens(d_mix_k))
            if GROUP_B != 0:
                write(own_d_B, k, L, exists_n, join_tokens(d_B_k))
            if GROUP_C != 0:
                write(own_d_C, k, L, exists_n, join_tokens(d_C_k))

    tl.store(d_A + own_states, sum_A, mask=exists)
    tl.store(d_D + own_channels, sum_D, mask=exists_d)
    tl.store(d_bias + own_channels, sum_bias, mask=exists_d)
    if GROUP_B == 0:
        tl.store(d_B + own_states, sum_B, mask=exists)
    if GROUP_C == 0:
        tl.store(d_C + own_states, sum_C, mask=exists)
    if segment == 0:
        before_all = d_start + batch * D * N + d * state_d + n * state_n
        tl.store(before_all, g, mask=exists)
        if TAPS == 2:
            tl.store(before_all + tl.num_programs(2).to(tl.int64) * D * N, d_past, mask=exists)
