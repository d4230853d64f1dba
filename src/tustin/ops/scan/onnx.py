"""The scan in ONNX's words: one standard `Scan` over the tokens, whatever the rule.

Its body is `Step`, exported by PyTorch itself: the rule's own `coefficients` are the only formula there is, so a rule
that a user has registered translates, too. Everything is computed token by token on tensors (batch, N, D), which stay
in a cache; weights for all tokens at once, or chunks of them, were slower in onnxruntime (docs/deployment.md).
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...discretize import Discretization, get_discretization
from ...discretize.compact import recording
from .arguments import OPTIONAL, TENSORS, Options, Tensors, split

__all__ = ["translate"]

OPSET = 18
"""What PyTorch's exporter translates into; it converts the whole graph to a newer one where that is asked for."""


class Form(NamedTuple):
    """What decides the body of the scan."""

    rule: Discretization
    D: int
    N: int
    B: int
    """Dimensions of B: 2 if constant, 3 if per token, 4 if grouped."""
    C: int
    groups: tuple[int, int]
    """Of B and of C; 1 where they are not grouped."""
    double: bool

    @property
    def dtype(self) -> torch.dtype:
        return torch.float64 if self.double else torch.float32


class Step(nn.Module):
    """One token. The state is h (batch, N, D), and the newest products B u where the rule looks back on some."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self.form = form

    def forward(self, A: Tensor, B: Tensor, C: Tensor, delta: Tensor, u: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        """A (N, D); delta and u (batch, 1, D); B and C as `_matrix` makes them → the next state, and y (batch, 1, D)."""
        h, *past = state
        B = _spread(B, self.form.D, self.form.groups[0])
        with recording():
            alpha, betas = self.form.rule.coefficients(delta, delta * A)
        if past:
            inputs = [B * u, *past]
            h = alpha * h + sum(beta * v for beta, v in zip(betas, inputs, strict=True))
        else:  # a β of Δ alone, as Mamba's, is multiplied before it is spread over the states
            inputs = []
            h = alpha * h + (betas[0] * u) * B
        if self.form.C == 3:
            y = C.transpose(1, 2) @ h
        else:
            y = (_spread(C, self.form.D, self.form.groups[1]) * h).sum(1, keepdim=True)
        return h, *inputs[: len(past)], y


def _spread(matrix: Tensor, D: int, groups: int) -> Tensor:
    """(batch, N, G) → (batch, N, D), where G > 1; everything else broadcasts by itself."""
    return matrix if groups == 1 else matrix.repeat_interleave(D // groups, dim=2)


@functools.cache
def _body(form: Form) -> Any:
    """The graph of a step; its inputs are those of `Step.forward`."""
    batch, dtype = torch.export.Dim("batch"), form.dtype

    def sample(*shape: int) -> Tensor:
        return torch.rand(*shape, dtype=dtype)

    def matrix(dimensions: int, groups: int) -> tuple[Tensor, dict[int, Any]]:
        if dimensions == 2:
            return sample(form.N, form.D), {}
        return sample(2, form.N, groups), {0: batch}

    (B, B_shape), (C, C_shape) = matrix(form.B, form.groups[0]), matrix(form.C, form.groups[1])
    states = [sample(2, form.N, form.D) for _ in range(form.rule.taps)]
    tokens = [sample(2, 1, form.D) for _ in range(2)]
    dynamic = ({}, B_shape, C_shape, {0: batch}, {0: batch}, tuple({0: batch} for _ in states))
    with warnings.catch_warnings(action="ignore"):
        program = torch.onnx.export(
            Step(form).eval(),
            (sample(form.N, form.D), B, C, *tokens, *states),
            dynamic_shapes=dynamic,
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    return program.model.graph


def translate(*arguments: Any) -> tuple[Any, Any, Any]:
    """`tustin::selective_scan` as nodes of the graph that is being recorded; its arguments are values of that graph."""
    import onnx_ir as ir
    from onnxscript import opset18 as op

    tensors, options = split((*arguments[:TENSORS], *arguments[TENSORS:]))
    rule = get_discretization(options.discretization)
    float64 = ir.DataType.DOUBLE
    double = any(t is not None and t.dtype == float64 for t in tensors)
    kind = float64 if double else ir.DataType.FLOAT
    out_kind = tensors.u.dtype
    form = _form(tensors, rule, double)
    u, delta, A, B, C, D, z, bias, initial = (None if t is None else _cast(op, t, kind) for t in tensors)

    def tokens(value: Any) -> Any:
        """(batch, D, L) → (L, batch, 1, D)."""
        return op.Unsqueeze(op.Transpose(value, perm=[2, 0, 1]), op.Constant(value_ints=[2]))

    if bias is not None:
        delta = op.Add(delta, op.Unsqueeze(bias, op.Constant(value_ints=[1])))
    if options.delta_softplus:
        delta = op.Softplus(delta)
    state = _initial_state(op, initial, u, form)
    matrices = [_matrix(op, B, form.B), _matrix(op, C, form.C)]
    per_token = [m for m, n in zip(matrices, (form.B, form.C), strict=True) if n > 2]
    outputs = _scan(form, op.Transpose(A, perm=[1, 0]), matrices, [tokens(delta), tokens(u)], state, per_token, options)
    *last, y = outputs
    out = op.Transpose(op.Squeeze(y, op.Constant(value_ints=[2])), perm=[1, 2, 0])  # (batch, D, L)
    if D is not None:
        out = op.Add(out, op.Mul(op.Unsqueeze(D, op.Constant(value_ints=[1])), u))
    if z is not None:
        out = op.Mul(out, op.Mul(z, op.Sigmoid(z)))
    parts = [op.Transpose(part, perm=[0, 2, 1]) for part in last]  # (batch, D, N)
    if len(parts) > 1:
        minus_one = op.Constant(value_ints=[-1])
        parts = [op.Concat(*[op.Unsqueeze(part, minus_one) for part in parts], axis=-1)]
    nothing = op.ConstantOfShape(op.Constant(value_ints=[0, 0, 0, 0]))
    return _cast(op, out, out_kind), parts[0], nothing


def _form(tensors: Tensors, rule: Discretization, double: bool) -> Form:
    D, N = (int(size) for size in tensors.A.shape)
    dimensions = [len(matrix.shape) for matrix in (tensors.B, tensors.C)]
    groups = [int(matrix.shape[1]) if len(matrix.shape) == 4 else 1 for matrix in (tensors.B, tensors.C)]
    return Form(rule, D, N, dimensions[0], dimensions[1], (groups[0], groups[1]), double)


def _cast(op: Any, value: Any, kind: Any) -> Any:
    return value if value.dtype == kind else op.Cast(value, to=int(kind))


def _matrix(op: Any, matrix: Any, dimensions: int) -> Any:
    """B or C: (N, D) if constant, (L, batch, N, 1) per token, (L, batch, N, G) grouped."""
    if dimensions == 2:
        return op.Transpose(matrix, perm=[1, 0])
    if dimensions == 4:
        return op.Transpose(matrix, perm=[3, 0, 2, 1])
    return op.Unsqueeze(op.Transpose(matrix, perm=[2, 0, 1]), op.Constant(value_ints=[3]))


def _initial_state(op: Any, initial: Any, u: Any, form: Form) -> list[Any]:
    """The parts of the state before the first token, (batch, N, D) each."""
    taps = form.rule.taps
    if initial is None:
        shape = op.Concat(op.Shape(u, start=0, end=1), op.Constant(value_ints=[form.N, form.D]), axis=0)
        import onnx_ir as ir

        zero = op.Constant(value=ir.tensor([0.0], dtype=ir.DataType.DOUBLE if form.double else ir.DataType.FLOAT))
        return [op.Expand(zero, shape)] * taps
    if taps == 1:
        return [op.Transpose(initial, perm=[0, 2, 1])]
    parts = [op.Gather(initial, op.Constant(value_int=i), axis=3) for i in range(taps)]
    return [op.Transpose(part, perm=[0, 2, 1]) for part in parts]


def _scan(
    form: Form, A: Any, matrices: list[Any], tokens: list[Any], state: list[Any], per_token: list[Any], options: Options
) -> Sequence[Any]:
    """The node itself: parts of the last state, then y."""
    import onnx_ir as ir
    from onnxscript import evaluator

    body = _body(form).clone()
    for value in (*body.inputs, *(output for node in body for output in node.outputs)):
        value.name = f"step.{value.name}"  # a name of the graph around it may not be used again
    own = list(body.inputs)
    held = {id(own[0]): A}
    for value, matrix, dimensions in zip(own[1:3], matrices, (form.B, form.C), strict=True):
        if dimensions == 2:
            held[id(value)] = matrix
    for value in own:
        if id(value) in held:  # the same for all tokens: seen from outside
            ir.convenience.replace_all_uses_with(value, held[id(value)])
    varying = [value for value in own if id(value) not in held]
    states, scanned = varying[-len(state) :], varying[: -len(state)]
    body.inputs.clear()
    body.inputs.extend([*states, *scanned])
    inputs = [*state, *per_token, *tokens]
    direction = [int(options.reverse)]
    node = ir.Node(
        "",
        "Scan",
        inputs,
        [
            ir.AttrGraph("body", body),
            ir.AttrInt64("num_scan_inputs", len(scanned)),
            ir.AttrInt64s("scan_input_directions", direction * len(scanned)),
            ir.AttrInt64s("scan_output_directions", direction),
        ],
        num_outputs=len(state) + 1,
        version=OPSET,
    )
    for output in node.outputs:
        output.dtype = ir.DataType.DOUBLE if form.double else ir.DataType.FLOAT
    recorder: Any = evaluator.default()
    recorder.nodes.append(node)
    return tuple(node.outputs)
