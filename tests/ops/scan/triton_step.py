"""One step of a rule and its gradients by Triton's interpreter, outside of the scan."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from tustin.ops.scan.triton_discretizations import Functions


@triton.jit
def evaluate(
    delta,
    A,
    out,
    size,
    WEIGHTS: tl.constexpr,
    TOKEN: tl.constexpr,
    STEP: tl.constexpr,
    ADJOINT: tl.constexpr,
    P: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A step and its gradients for each pair of Δ and A: with an input and no state, then with a state and no input."""
    i = tl.arange(0, BLOCK)
    exists = i < size
    d = tl.load(delta + i, mask=exists, other=1.0)
    weights = WEIGHTS(tl.load(A + i, mask=exists, other=-1.0), P)
    zero, one = tl.zeros([BLOCK], tl.float32), tl.full([BLOCK], 1.0, tl.float32)
    token = TOKEN(d, one, P)
    beta, kept = STEP(token, weights, zero, one, P)
    _, by_A, by_delta, push, product = ADJOINT(token, weights, kept, zero, beta, one, one, P)
    if push is not None:
        by_delta += token[2] * push
    alpha, kept = STEP(token, weights, one, zero, P)
    _, alpha_A, _, _, _ = ADJOINT(token, weights, kept, one, alpha, zero, one, P)
    values = (kept[0], beta, token[1] * product, alpha_A, by_A, by_delta)
    for j in tl.static_range(len(values)):
        tl.store(out + j * size + i, zero + values[j], mask=exists)


def evaluated(functions: Functions, delta: Tensor, A: Tensor) -> Tensor:
    out = torch.empty(6, delta.numel())
    block = 1 << (delta.numel() - 1).bit_length()
    names = dict(zip(("WEIGHTS", "TOKEN", "STEP", "ADJOINT", "P"), functions, strict=True))
    evaluate[(1,)](delta, A, out, delta.numel(), **names, BLOCK=block)
    return out
