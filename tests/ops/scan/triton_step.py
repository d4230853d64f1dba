"""One step of a rule and its gradients by Triton's interpreter, outside of the scan, and what they should be."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from tests.discretize import judge
from tests.tolerances import DERIVATIVES, VALUES
from tustin import DISCRETIZATIONS
from tustin.ops.scan.triton_discretizations import Functions
from tustin.ops.scan.triton_tokens import rule_step, rule_token


@triton.jit
def adjoint(ADJOINT: tl.constexpr, token, weights, kept, h, after, B, d, past, TAPS: tl.constexpr, P: tl.constexpr):
    if TAPS == 2:
        return ADJOINT(token, weights, kept, h, after, B, d, P, past)
    return ADJOINT(token, weights, kept, h, after, B, d, P)


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
    TAPS: tl.constexpr,
    MIX: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A step and its gradients for each pair of Δ and A: with an input and no state, then with a state and no input.

    For a rule of two samples then with the input of the token before alone.
    """
    i = tl.arange(0, BLOCK)
    exists = i < size
    d = tl.load(delta + i, mask=exists, other=1.0)
    weights = WEIGHTS(tl.load(A + i, mask=exists, other=-1.0), P)
    zero, one = tl.zeros([BLOCK], tl.float32), tl.full([BLOCK], 1.0, tl.float32)
    token = rule_token(TOKEN, d, one, MIX, MIX is not None, P)
    beta, kept = rule_step(STEP, token, weights, zero, one, zero, TAPS, P)
    found = adjoint(ADJOINT, token, weights, kept, zero, beta, one, one, zero, TAPS, P)
    by_A, by_delta, push, product = found[1], found[2], found[3], found[4]
    if push is not None:
        by_delta += token[2] * push
    alpha, kept = rule_step(STEP, token, weights, one, zero, zero, TAPS, P)
    alpha_A = adjoint(ADJOINT, token, weights, kept, one, alpha, zero, one, zero, TAPS, P)[1]
    values = (kept[0], beta, token[1] * product, alpha_A, by_A, by_delta)
    if TAPS == 2:
        beta, kept = rule_step(STEP, token, weights, zero, zero, one, TAPS, P)
        found = adjoint(ADJOINT, token, weights, kept, zero, beta, zero, one, one, TAPS, P)
        values += (beta, kept[1], found[1], found[2])
    for j in tl.static_range(len(values)):
        tl.store(out + j * size + i, zero + values[j], mask=exists)


def evaluated(functions: Functions, delta: Tensor, A: Tensor, mix: float | None) -> Tensor:
    out = torch.empty(6 if functions.taps == 1 else 10, delta.numel())
    block = 1 << (delta.numel() - 1).bit_length()
    names = dict(zip(("WEIGHTS", "TOKEN", "STEP", "ADJOINT", "P", "TAPS"), functions, strict=False))
    evaluate[(1,)](delta, A, out, delta.numel(), **names, MIX=mix, BLOCK=block)
    return out


def exactly(discretization: str, d: float, a: float) -> dict[str, tuple[float, float, float]]:
    """What `evaluate` should find, its tolerance, and the size of an error that does not count, by name.

    e^z is known to some units in the last place of 1, not of itself, so that is excused wherever it is a summand; and
    so are RK4's polynomials by the size of their terms, because they change sign.
    """
    z = judge.mp.mpf(d) * judge.mp.mpf(a)
    growth, beta = float(judge.ALPHA[discretization](z) - 1), judge.quantity(discretization, "β", d, float(z))
    alpha_z, beta_z, beta_d = (
        judge.quantity(discretization, name, d, float(z)) for name in ("∂α/∂z", "∂β/∂z", "∂β/∂Δ")
    )
    ulp, size = 2**-23, abs(float(z))
    raw = 2 * ulp * (1 + size**3) if discretization == "rk4_raw" else 0.0
    slope = raw or (0.0 if discretization in ("bil", "true_bil") else 4 * ulp)
    values = {
        "α − 1": (growth, VALUES, raw * size),
        "β": (beta, VALUES, raw * d),
        "β again": (beta, VALUES, raw * d),
        "Δ·∂α/∂z": (d * alpha_z, DERIVATIVES, d * slope),
        "dβ/dA": (d * beta_z, DERIVATIVES, raw * d * d),
        "dβ/dΔ": (beta_d + a * beta_z, DERIVATIVES, 0.0 if discretization == "foh" else slope),
    }
    if DISCRETIZATIONS[discretization].taps == 2:  # the weight of the sample before
        beta, beta_z, beta_d = (
            judge.quantity(discretization, name, d, float(z)) for name in ("β1", "∂β1/∂z", "∂β1/∂Δ")
        )
        in_alpha = slope if discretization == "exptrap" else 0.0
        values |= {
            "β1": (beta, VALUES, in_alpha * d),
            "β1 again": (beta, VALUES, in_alpha * d),
            "dβ1/dA": (d * beta_z, DERIVATIVES, in_alpha * d * d),
            "dβ1/dΔ": (beta_d + a * beta_z, DERIVATIVES, slope * (1 + size)),
        }
    return {name: (value, table[torch.float32], slack) for name, (value, table, slack) in values.items()}
