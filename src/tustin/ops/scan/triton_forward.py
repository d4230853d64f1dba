"""The selective scan and its gradient for GPUs, blind to the rule, which comes as jit functions.

A program walks one segment of the tokens of one sample, with the states of a block of channels in registers. Before
each chunk of CHUNK tokens the forward pass keeps the state; from it the backward pass recomputes the states inside the
chunk, again in registers. Nothing of size (batch, L, D, N) ever exists.

Where samples and channels alone fill a GPU, the segment is the whole sequence. Otherwise there are several, and

    1. every segment by itself: what it makes of a zero state, and the product of its α     (end_of_segment)
    2. the segments one after the other: the state with which each begins                   (join_segments)
    3. every segment by itself, from there                                                  (forward)

and so in the other direction for the gradient of the state (start_of_segment, join_segments, backward).

A rule of two samples (TAPS) also reads v = B·u of the token before. That is computed again from B and u where a program
or a chunk begins, and handed on from token to token.

No two programs write to one place, and no sum depends on which program runs first: where many contribute, each writes a
partial sum of its own. Token k is counted in the direction of the walk; REVERSE only says where it lies in memory.
Beyond the last token Δ = 0, which leaves the state alone.
"""

import triton
import triton.language as tl

from .triton_tokens import (
    NOT_SPECIALIZED,
    chunk_places,
    entries,
    entries_of,
    entry_pairs,
    join_tokens,
    load_A,
    load_parameter,
    program_channels,
    program_group,
    program_states,
    read,
    rule_step,
    rule_token,
    sample_at,
    split_tokens,
    state_places,
    steps,
    walk,
    walk_matrix,
    weighted_sum,
    write,
)


@triton.jit(do_not_specialize=NOT_SPECIALIZED)
def end_of_segment(
    u,
    delta,
    A,
    B,
    mix,
    delta_bias,
    past_start,
    ends,
    products,
    pasts,
    u_strides,
    delta_strides,
    B_strides,
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
    GROUP_B: tl.constexpr,
    BLOCK_D: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """What each segment makes of a zero state, and of a one without input: (batch, segments, N, D) both.

    For a rule of two samples also the v with which it begins; the first of all is in `past_start` (batch, N, D).
    """
    d, exists_d = program_channels(GROUP, BLOCK_D)
    first_d = program_group(GROUP, BLOCK_D)
    n, exists_n = program_states(N)
    exists = exists_n & exists_d
    segment, batch = tl.program_id(1).to(POSITION), tl.program_id(2).to(tl.int64)
    L = L.to(POSITION)
    u = walk(u, u_strides, batch, d, L, REVERSE)
    delta = walk(delta, delta_strides, batch, d, L, REVERSE)
    if mix is not None:
        mix = walk(mix, mix_strides, batch, d, L, REVERSE)
    B = walk_matrix(B, B_strides, batch, first_d, d, n, exists, L, REVERSE, GROUP_B)
    bias = load_parameter(delta_bias, d, exists_d)
    weights = WEIGHTS(load_A(A, d, n, exists, A_d, A_n), P)

    h, product = tl.zeros(exists.shape, tl.float32), tl.full(exists.shape, 1.0, tl.float32)
    first = segment * segment_length
    place = state_places(d, n, batch * tl.num_programs(1) + segment, D, N)
    past = tl.zeros(exists.shape, tl.float32)
    if TAPS == 2:
        past_places = state_places(d, n, batch, D, N)
        past = sample_at(u, B, first - 1, past_start, past_places, exists_d, exists_n, GROUP_B)
        tl.store(pasts + place, past, mask=exists)
    for k in range(first, tl.minimum(first + segment_length, L), UNROLL):
        u_k = read(u, k, L, exists_d, UNROLL)
        step_k = split_tokens(steps(delta, bias, k, L, exists_d, SOFTPLUS, UNROLL)[1])
        B_k = entries(B, k, L, exists_n, GROUP_B, UNROLL)
        mix_k = read(mix, k, L, exists_d, UNROLL) if mix is not None else u_k
        for j in tl.static_range(UNROLL):
            token = rule_token(TOKEN, step_k[j], u_k[j], mix_k[j], mix is not None, P)
            h, kept = rule_step(STEP, token, weights, h, B_k[j], past, TAPS, P)
            product += kept[0] * product
            if TAPS == 2:
                past = u_k[j] * B_k[j]
    tl.store(ends + place, h, mask=exists)
    tl.store(products + place, product, mask=exists)


@triton.jit
def join_segments(
    start,
    ends,
    products,
    past,
    pasts,
    past_products,
    size,
    SEGMENTS: tl.constexpr,
    BACKWARDS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Replaces what each segment makes of zero, (batch, segments, size), by the state with which it begins.

    Backwards, where a rule reads two samples, the gradient of a segment's last v also depends on that of the state; the
    first is `past`.
    """
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    batch, exists = tl.program_id(1).to(tl.int64), i < size
    h = tl.zeros([BLOCK], tl.float32)
    if start is not None:
        h = tl.load(start + batch * size + i, mask=exists)
    d_v = tl.zeros([BLOCK], tl.float32)
    if past is not None:
        d_v = tl.load(past + batch * size + i, mask=exists)
    for s in range(SEGMENTS):
        place = (batch * SEGMENTS + (SEGMENTS - 1 - s if BACKWARDS else s)) * size + i
        end = tl.load(ends + place, mask=exists)
        product = tl.load(products + place, mask=exists)
        tl.store(ends + place, h, mask=exists)
        if pasts is not None:
            own, share = tl.load(pasts + place, mask=exists), tl.load(past_products + place, mask=exists)
            tl.store(pasts + place, d_v, mask=exists)
            d_v = share * h + own
        h = product * h + end


@triton.jit(do_not_specialize=NOT_SPECIALIZED)
def forward(
    u,
    delta,
    A,
    B,
    C,
    D_skip,
    z,
    mix,
    delta_bias,
    start,
    past_start,
    out,
    last_state,
    chunk_states,
    u_strides,
    delta_strides,
    B_strides,
    C_strides,
    z_strides,
    mix_strides,
    out_strides,
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
    """Output, last state (parts, batch, D, N), and the state before each chunk (batch, chunks, N, D).

    `start` (batch, segments, N, D) are the states with which the segments begin, `past_start` their v. UNROLL tokens
    are loaded at once, so that the memory is at work on all of them.
    """
    d, exists_d = program_channels(GROUP, BLOCK_D)
    first_d = program_group(GROUP, BLOCK_D)
    n, exists_n = program_states(N)
    exists = exists_n & exists_d
    segment, batch = tl.program_id(1).to(POSITION), tl.program_id(2).to(tl.int64)
    L = L.to(POSITION)
    u = walk(u, u_strides, batch, d, L, REVERSE)
    delta = walk(delta, delta_strides, batch, d, L, REVERSE)
    out = walk(out, out_strides, batch, d, L, REVERSE)
    if z is not None:
        z = walk(z, z_strides, batch, d, L, REVERSE)
    if mix is not None:
        mix = walk(mix, mix_strides, batch, d, L, REVERSE)
    B = walk_matrix(B, B_strides, batch, first_d, d, n, exists, L, REVERSE, GROUP_B)
    C = walk_matrix(C, C_strides, batch, first_d, d, n, exists, L, REVERSE, GROUP_C)
    skip, bias = load_parameter(D_skip, d, exists_d), load_parameter(delta_bias, d, exists_d)
    weights = WEIGHTS(load_A(A, d, n, exists, A_d, A_n), P)

    h = tl.zeros(exists.shape, tl.float32)
    own_states = state_places(d, n, batch * tl.num_programs(1) + segment, D, N)
    if start is not None:
        h = tl.load(start + own_states, mask=exists, other=0.0)
    past = tl.zeros(exists.shape, tl.float32)
    if past_start is not None:
        past = tl.load(past_start + own_states, mask=exists, other=0.0)
    first = segment * segment_length
    end = tl.minimum(first + segment_length, L)
    if chunk_states is not None:
        chunk_states += batch * tl.cdiv(L, CHUNK) * N * D
    for k0 in range(first, end, CHUNK):
        if chunk_states is not None:
            tl.store(chunk_states + chunk_places(d, n, k0, L, D, N, CHUNK), h, mask=exists)
        for inside in range(0, tl.minimum(CHUNK, end - k0), UNROLL):
            k = k0 | inside  # the sum; but of a sum the compiler keeps the product with every stride in a register
            u_k = read(u, k, L, exists_d, UNROLL)
            step_k = split_tokens(steps(delta, bias, k, L, exists_d, SOFTPLUS, UNROLL)[1])
            z_k = read(z, k, L, exists_d, UNROLL) if z is not None else u_k
            B_pairs = entry_pairs(B, k, L, exists_n, GROUP_B, UNROLL)
            C_pairs = entry_pairs(C, k, L, exists_n, GROUP_C, UNROLL)
            mix_k = read(mix, k, L, exists_d, UNROLL) if mix is not None else u_k
            B_k, C_k, results = (), (), ()
            for j in tl.static_range(UNROLL):
                if j % 2 == 0:
                    B_k += entries_of(B_pairs[j // 2], GROUP_B)
                    C_k += entries_of(C_pairs[j // 2], GROUP_C)
                token = rule_token(TOKEN, step_k[j], u_k[j], mix_k[j], mix is not None, P)
                h = rule_step(STEP, token, weights, h, B_k[j], past, TAPS, P)[0]
                if TAPS == 2:
                    past = u_k[j] * B_k[j]
                y = weighted_sum(h, C_k[j], 3) + skip * u_k[j]
                if z is not None:
                    y *= z_k[j] * tl.sigmoid(z_k[j])
                results += (y,)
            write(out, k, L, exists_d, join_tokens(results))
    if segment == tl.num_programs(1) - 1:
        last = last_state + batch * D * N + d * state_d + n * state_n
        tl.store(last, h, mask=exists)
        if TAPS == 2:
            newest = sample_at(u, B, L - 1, None, None, exists_d, exists_n, GROUP_B)
            tl.store(last + tl.num_programs(2).to(tl.int64) * D * N, newest, mask=exists)
