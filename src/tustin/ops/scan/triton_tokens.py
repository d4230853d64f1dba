"""What the kernels of the scan share: the channels and states of a program, and what its tokens bring.

A program holds its states as (N, channels). What belongs to a channel is (1, channels), what belongs to a state (N, 1).
Four tokens come and go together, as a tile with the tokens along a last dimension: so a warp loads, converts and
stores every number once, and finds the softplus of every step once, before the threads exchange them.

Tokens are counted in the type of L, in which every distance within a sample fits too: where that is narrow, it saves
registers and instructions.
"""

import triton
import triton.language as tl

from .triton_elementary import softplus

# What the compiler must not know: that these are multiples of 16. It would load and store states four at a time, and so
# hold them, and all that is computed with them, in an order that suits nothing else.
NOT_SPECIALIZED = ["D", "L", "segment_length", "A_d", "A_n", "state_d", "state_n"]
_AS_GOOD_AS_ZERO = tl.constexpr(1e-18)  # as A, but it has an inverse


# ── what a program works on ──────────────────────────────────────────────────────────────────────────────────────────


@triton.jit
def program_channels(GROUP: tl.constexpr, BLOCK_D: tl.constexpr):
    """The channels of this program, and which of them exist: a block ends where a group of B or C does."""
    blocks: tl.constexpr = (GROUP + BLOCK_D - 1) // BLOCK_D
    block = tl.program_id(0)
    inside = block % blocks * BLOCK_D + tl.arange(0, BLOCK_D)[None, :]
    return block // blocks * GROUP + inside, inside < GROUP


@triton.jit
def program_group(GROUP: tl.constexpr, BLOCK_D: tl.constexpr):
    """The first channel of the group that this program works on."""
    return tl.program_id(0) // ((GROUP + BLOCK_D - 1) // BLOCK_D) * GROUP


@triton.jit
def program_states(N: tl.constexpr):
    n = tl.arange(0, triton.next_power_of_2(N))[:, None]
    return n, n < N


@triton.jit
def state_places(d, n, index, D, N: tl.constexpr):
    """Where the states of this program are in number `index` of many (N, D)."""
    return index.to(tl.int64) * N * D + (n * D + d)


@triton.jit
def chunk_places(d, n, k, L, D, N: tl.constexpr, CHUNK: tl.constexpr):
    """Where the states of this program before the chunk of token k are among those of the sample.

    Not as state_places says it: its n·D + d would be known before the loops, and take registers until they end.
    """
    return (k // CHUNK * N + n) * D.to(L.dtype) + d


@triton.jit
def load_A(A, d, n, exists, stride_d, stride_n):
    """A, where it is zero as good as that."""
    a = tl.load(A + d * stride_d + n * stride_n, mask=exists, other=-1.0)
    return tl.where(tl.abs(a) < _AS_GOOD_AS_ZERO, -_AS_GOOD_AS_ZERO, a)


@triton.jit
def load_parameter(data, d, exists):
    """One number per channel; zero where it is not given."""
    return tl.zeros(d.shape, tl.float32) if data is None else tl.load(data + d, mask=exists, other=0.0)


# ── where tokens are: where the sample begins, how far from there token 0 is, and from one token to the next ────────
# The first is the same for the whole program, so it takes no register of a thread. The others count in the type of L.


@triton.jit
def walk(data, strides, batch, d, L, REVERSE: tl.constexpr):
    """Of one number per channel."""
    return _directed(data + batch * strides[0], d.to(L.dtype) * strides[1], strides[2], L, REVERSE)


@triton.jit
def walk_matrix(data, strides, batch, first_d, d, n, exists, L, REVERSE: tl.constexpr, GROUP: tl.constexpr):
    """Of B or C for the channels from `first_d` on; where it is constant (GROUP is 0), the matrix itself."""
    if GROUP == 0:
        places = d.to(tl.int64) * strides[0] + n * strides[1]
        return tl.load(data + places, mask=exists, other=0.0).to(tl.float32), 0, 0
    first = data + batch * strides[0] + (first_d // GROUP).to(tl.int64) * strides[1]
    return _directed(first, n.to(L.dtype) * strides[2], strides[3], L, REVERSE)


@triton.jit
def walk_sums(data, n, L, N: tl.constexpr, REVERSE: tl.constexpr):
    """Of this program's part of (batch, blocks, L, N)."""
    block = tl.program_id(2).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)
    return _directed(data + block * L * N, n.to(L.dtype), N, L, REVERSE)


@triton.jit
def _directed(first, offset, stride, L, REVERSE: tl.constexpr):
    if REVERSE:
        return first + (L - 1).to(tl.int64) * stride, offset, -stride
    return first, offset, stride * 1


@triton.jit
def are_tokens(k, L, T: tl.constexpr):
    """Which of the T tokens from k on come before the end."""
    return k + tl.arange(0, T)[None, None, :].to(L.dtype) < L


@triton.jit
def split_tokens(tile):
    """The tokens of a tile, one by one."""
    early, late = pairs(tile)
    return tl.split(early) + tl.split(late)


@triton.jit
def pairs(tile):
    """The first two tokens of a tile, and the last two. No thread has got another's numbers yet."""
    return tl.split(tl.permute(tl.reshape(tile, tile.shape[0], tile.shape[1], 2, 2), (0, 1, 3, 2)))


@triton.jit
def join_tokens(parts):
    """A tile of four tokens."""
    tile = tl.join(tl.join(parts[0], parts[2]), tl.join(parts[1], parts[3]))
    return tl.reshape(tile, tile.shape[0], tile.shape[1], 4)


@triton.jit
def replaced(values, index, value):
    """The tuple with its entry at a run-time index replaced."""
    new = ()
    for i in tl.static_range(len(values)):
        new += (tl.where(index == i, value, values[i]),)
    return new


@triton.jit
def chosen(values, index):
    """The entry of a tuple at a run-time index."""
    value = values[0]
    for i in tl.static_range(1, len(values)):
        value = tl.where(index == i, values[i], value)
    return value


@triton.jit
def read_tile(places, k, L, exists, T: tl.constexpr):
    """Tokens k to k + T − 1 along a last dimension; zero beyond the last."""
    first, offset, step = places
    j = tl.arange(0, T)[None, None, :].to(L.dtype)
    wanted = exists[:, :, None] & are_tokens(k, L, T)
    return tl.load(first + ((k + j) * step + offset[:, :, None]), mask=wanted, other=0.0).to(tl.float32)


@triton.jit
def read(places, k, L, exists, T: tl.constexpr):
    """The values of T tokens from k on, one by one; zero beyond the last. All are loaded at once."""
    return split_tokens(read_tile(places, k, L, exists, T))


@triton.jit
def entries(places, k, L, exists, GROUP: tl.constexpr, T: tl.constexpr):
    """B or C of T tokens from k on."""
    early, late = entry_pairs(places, k, L, exists, GROUP, T)
    return entries_of(early, GROUP) + entries_of(late, GROUP)


@triton.jit
def entry_pairs(places, k, L, exists, GROUP: tl.constexpr, T: tl.constexpr):
    """B or C of T tokens from k on, all loaded, but two at a time to be shown to every thread by `entries_of`.

    What all threads know takes registers of each, so those who can wait for the second two should.
    """
    return (places[0], places[0]) if GROUP == 0 else pairs(read_tile(places, k, L, exists, T))


@triton.jit
def entries_of(pair, GROUP: tl.constexpr):
    """One by one."""
    return (pair, pair) if GROUP == 0 else tl.split(pair)


@triton.jit
def weighted_sum(x, weight, HALVINGS: tl.constexpr):
    """Σ_n weight·x. All that is added before the last sum is added by a fused multiplication, in the same thread."""
    parts, weights = (x,), (tl.broadcast_to(weight, x.shape),)
    for _ in tl.static_range(HALVINGS):
        if parts[0].shape[0] > 1:
            parts, weights = _halved(parts), _halved(weights)
    total = parts[0] * weights[0]
    for i in tl.static_range(1, len(parts)):
        total += parts[i] * weights[i]
    return tl.sum(total, 0, keep_dims=True)


@triton.jit
def _halved(parts):
    """Of each its even states, and its odd ones."""
    halves = ()
    for i in tl.static_range(len(parts)):
        part = parts[i]
        halves += tl.split(tl.permute(tl.reshape(part, part.shape[0] // 2, 2, part.shape[1]), (0, 2, 1)))
    return halves


@triton.jit
def sample_at(u, B, k, start, start_places, exists_d, exists_n, GROUP: tl.constexpr):
    """v = B·u of one token; before the first what is at `start`, or zero."""
    is_token = tl.full([1, 1], 0, k.dtype) + k >= 0
    u_k = tl.load(u[0] + (k * u[2] + u[1]), mask=exists_d & is_token, other=0.0).to(tl.float32)
    if GROUP == 0:
        v = tl.where(is_token, u_k * B[0], 0.0)
    else:
        v = u_k * tl.load(B[0] + (k * B[2] + B[1]), mask=exists_n & is_token, other=0.0).to(tl.float32)
    if start is not None:
        v += tl.load(start + start_places, mask=exists_n & exists_d & ~is_token, other=0.0)
    return v


@triton.jit
def steps(delta, bias, k, L, exists, SOFTPLUS: tl.constexpr, T: tl.constexpr):
    """delta with its bias, and Δ, of T tokens from k on, along a last dimension; Δ is zero beyond the last."""
    raw = read_tile(delta, k, L, exists, T) + bias[:, :, None]
    return raw, tl.where(are_tokens(k, L, T), softplus(raw) if SOFTPLUS else raw, 0.0)


@triton.jit
def rule_token(TOKEN: tl.constexpr, delta, u, mix, MIXED: tl.constexpr, P: tl.constexpr):
    """What a rule wants to know of a token, with λ where that is given."""
    return TOKEN(delta, u, P, mix) if MIXED else TOKEN(delta, u, P)


@triton.jit
def rule_step(STEP: tl.constexpr, token, weights, h, B, past, TAPS: tl.constexpr, P: tl.constexpr):
    """The step of a rule, with v of the token before where it reads that."""
    return STEP(token, weights, h, B, P, past) if TAPS == 2 else STEP(token, weights, h, B, P)


@triton.jit
def write(places, k, L, exists, tile):
    """A tile with the tokens from k on."""
    first, offset, step = places
    T: tl.constexpr = tile.shape[2]
    j = tl.arange(0, T)[None, None, :].to(L.dtype)
    wanted = exists[:, :, None] & are_tokens(k, L, T)
    tl.store(first + ((k + j) * step + offset[:, :, None]), tile.to(first.dtype.element_ty), mask=wanted)
