"""What the kernels of the scan share: the channels and states of a program, and what a token brings it."""

import triton
import triton.language as tl

from .triton_discretizations import softplus

# What the compiler must not know: that these are multiples of 16. It would load and store states four at a time, and so
# hold them, and all that is computed with them, in an order that suits nothing else.
NOT_SPECIALIZED = ["D", "L", "segment_length", "A_d", "A_n", "state_d", "state_n"]
_AS_GOOD_AS_ZERO = tl.constexpr(1e-18)  # as A, but it has an inverse


# ── what a program works on: n is (BLOCK_N, 1), d is (1, BLOCK_D) ────────────────────────────────────────────────────


@triton.jit
def program_channels(GROUP: tl.constexpr, BLOCK_D: tl.constexpr):
    """The channels of this program, and which of them exist: a block ends where a group of B or C does."""
    blocks: tl.constexpr = (GROUP + BLOCK_D - 1) // BLOCK_D
    block = tl.program_id(0).to(tl.int64)
    inside = block % blocks * BLOCK_D + tl.arange(0, BLOCK_D)[None, :]
    return block // blocks * GROUP + inside, inside < GROUP


@triton.jit
def program_states(N: tl.constexpr):
    n = tl.arange(0, triton.next_power_of_2(N))[:, None]
    return n, n < N


@triton.jit
def load_A(A, d, n, exists, stride_d, stride_n):
    """A and its inverse."""
    a = tl.load(A + d * stride_d + n * stride_n, mask=exists, other=-1.0)
    a = tl.where(tl.abs(a) < _AS_GOOD_AS_ZERO, -_AS_GOOD_AS_ZERO, a)
    return a, 1 / a


@triton.jit
def load_parameter(data, d, exists):
    """One number per channel; zero where it is not given."""
    return tl.zeros(d.shape, tl.float32) if data is None else tl.load(data + d, mask=exists, other=0.0)


@triton.jit
def load_matrix(data, strides, batch, d, n, exists, GROUP: tl.constexpr):
    """What `entries` needs of B or C: itself where it is constant (GROUP is 0), else where its tokens begin."""
    if GROUP == 0:
        return tl.load(data + d * strides[0] + n * strides[1], mask=exists, other=0.0).to(tl.float32)
    first = tl.min(d, 1, keep_dims=True)
    return data + batch * strides[0] + first // GROUP * strides[1] + n * strides[2]


# ── what a token brings ──────────────────────────────────────────────────────────────────────────────────────────────


@triton.jit
def place(k, L, stride, REVERSE: tl.constexpr):
    """The offset of token k."""
    return (L - 1 - k if REVERSE else k) * stride


@triton.jit
def is_token(k, L):
    """Whether k comes before the end, (1, 1): the interpreter cannot broadcast a scalar."""
    return tl.full([1, 1], k, L.dtype) < L


@triton.jit
def read(places, k, L, stride, exists, REVERSE: tl.constexpr):
    """The values of token k; zero beyond the last."""
    return tl.load(places + place(k, L, stride, REVERSE), mask=exists & is_token(k, L), other=0.0).to(tl.float32)


@triton.jit
def write(places, k, L, stride, exists, values, REVERSE: tl.constexpr):
    tl.store(places + place(k, L, stride, REVERSE), values.to(places.dtype.element_ty), mask=exists & is_token(k, L))


@triton.jit
def entries(matrix, strides, k, L, exists, REVERSE: tl.constexpr, GROUP: tl.constexpr):
    """B or C of token k: (BLOCK_N, 1), or (BLOCK_N, BLOCK_D) where it is constant."""
    return matrix if GROUP == 0 else read(matrix, k, L, strides[3], exists, REVERSE)


@triton.jit
def step_size(raw, k, L, SOFTPLUS: tl.constexpr):
    """Δ of token k, from delta with its bias."""
    return tl.where(is_token(k, L), softplus(raw) if SOFTPLUS else raw, 0.0)


@triton.jit
def advanced(h, growth, beta, u, B):
    """h_k = α·h_{k−1} + β·B u."""
    return h + (growth * h + beta * (u * B))
