"""The scan in ONNX's words: one standard `Scan` over the tokens, whatever the rule.

Its body is `Step`, exported by PyTorch itself: the rule's own `coefficients` are the only formula there is, so a rule
that a user has registered translates, too. Everything is computed token by token on tensors (batch, N, D), which stay
in a cache.
"""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...discretize import Discretization, get_discretization
from ...discretize.compact import recording
from .arguments import split

__all__ = ["translate"]

OPSET = 18
"""What PyTorch's exporter translates into; it converts the whole graph to a newer one where that is asked for."""


_numbers = itertools.count(1)


class Form(NamedTuple):
    """What decides the body of the scan."""

    rule: Discretization
    D: int
    N: int
    double: bool
    mixed: bool
    """Whether λ is given."""
    dimensions: tuple[int, int]
    """Of B and of C: 2 if constant, 3 if per token, 4 if grouped."""
    groups: tuple[int, int]
    """Of B and of C; 1 where they are not grouped."""


# --- a token, in PyTorch ----------------------------------------------------------------------------------------------


class Step(nn.Module):
    """The next state and y (batch, 1, D), from one token and the state.

    The state is h (batch, N, D), then the products B u (batch, N, D) and the steps (batch, 1, D) that the rule looks
    back on, newest first.
    """

    def __init__(self, form: Form) -> None:
        super().__init__()
        self.form = form

    def forward(self, A: Tensor, B: Tensor, C: Tensor, delta: Tensor, u: Tensor, *more: Tensor) -> tuple[Tensor, ...]:
        """A (N, D); B and C (N, D), or (batch, N, groups) of the token; delta, u and, if given, λ (batch, 1, D)."""
        form, rule = self.form, self.form.rule
        mix = more[:1] if form.mixed else ()
        h, *back = more[len(mix) :]
        past, earlier = back[: rule.taps - 1], back[rule.taps - 1 :]
        B = _spread(B, form.D, form.groups[0])
        options: dict[str, Any] = {"earlier": tuple(earlier)} if rule.steps > 1 else {}
        if rule.mixes:
            options["mix"] = mix[0] if mix else torch.tensor(0.5, dtype=delta.dtype)
        with recording():
            alpha, betas = rule.coefficients(delta, delta * A, **options)
        if past:
            past = [B * u, *past]
            h = alpha * h + sum(beta * v for beta, v in zip(betas, past, strict=True))
        else:  # a β of Δ alone, as Mamba's, is multiplied before it is spread over the states
            h = alpha * h + (betas[0] * u) * B
        if form.dimensions[1] == 3:
            y = C.transpose(1, 2) @ h
        else:
            y = (_spread(C, form.D, form.groups[1]) * h).sum(1, keepdim=True)
        return h, *past[: rule.taps - 1], *[delta, *earlier][: rule.steps - 1], y


def _spread(matrix: Tensor, D: int, groups: int) -> Tensor:
    """(batch, N, G) → (batch, N, D) where G > 1; everything else broadcasts by itself."""
    return matrix if groups == 1 else matrix.repeat_interleave(D // groups, dim=2)


@functools.cache
def _body(form: Form) -> Any:
    """The graph of a step; its inputs are those of `Step.forward`."""
    dtype = torch.float64 if form.double else torch.float32
    tall, flat = (2, form.N, form.D), (2, 1, form.D)
    matrices = [
        (form.N, form.D) if dimensions == 2 else (2, form.N, groups)
        for dimensions, groups in zip(form.dimensions, form.groups, strict=True)
    ]
    states = [tall] * form.rule.taps + [flat] * (form.rule.steps - 1)
    shapes: list[tuple[int, ...]] = [(form.N, form.D), *matrices, *[flat] * (2 + form.mixed), *states]
    dynamic: list[Any] = [{0: torch.export.Dim.DYNAMIC} if len(shape) == 3 else {} for shape in shapes]
    with warnings.catch_warnings(action="ignore"):  # of the exporter about itself
        program = torch.onnx.export(
            Step(form).eval(),
            tuple(torch.rand(shape, dtype=dtype) for shape in shapes),
            dynamic_shapes=(*dynamic[:5], tuple(dynamic[5:])),
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    return program.model.graph


# --- all tokens, in ONNX ----------------------------------------------------------------------------------------------


def translate(*arguments: Any) -> tuple[Any, Any, Any]:
    """`tustin::selective_scan` as nodes of the graph that is being recorded; its arguments are values of that graph."""
    op, ir = _libraries()
    tensors, options = split(arguments)
    double = any(value is not None and value.dtype == ir.DataType.DOUBLE for value in tensors)
    given = {name: value for name, value in tensors._asdict().items() if value is not None}
    out_type, kind = given["u"].dtype, ir.DataType.DOUBLE if double else ir.DataType.FLOAT
    given = {name: op.Cast(value, to=int(kind)) if value.dtype != kind else value for name, value in given.items()}
    D, N = (int(size) for size in given["A"].shape)
    dimensions = len(given["B"].shape), len(given["C"].shape)
    groups = [int(given[name].shape[1]) if n == 4 else 1 for name, n in zip("BC", dimensions, strict=True)]
    rule = get_discretization(options.discretization)
    form = Form(rule, D, N, double, "mix" in given, dimensions, (groups[0], groups[1]))

    u, delta = given["u"], given["delta"]
    if "delta_bias" in given:
        delta = op.Add(delta, _unsqueezed(given["delta_bias"], 1))
    if options.delta_softplus:
        delta = op.Softplus(delta)
    per_token = [_unsqueezed(op.Transpose(value, perm=[2, 0, 1]), 2) for value in (delta, u)]  # (L, batch, 1, D)
    if form.mixed:
        per_token.append(_unsqueezed(op.Transpose(given["mix"], perm=[2, 0, 1]), 2))
    A = op.Transpose(given["A"], perm=[1, 0])
    matrices = [_matrix(given[name], n) for name, n in zip("BC", dimensions, strict=True)]
    *last, y = _scan(form, [A, *matrices, *per_token], _initial_state(form, given, kind), options.reverse)
    out = op.Transpose(op.Squeeze(y, _integers(2)), perm=[1, 2, 0])  # (batch, D, L)
    if "D" in given:
        out = op.Add(out, op.Mul(_unsqueezed(given["D"], 1), u))
    if "z" in given:
        out = op.Mul(out, op.Mul(given["z"], op.Sigmoid(given["z"])))
    out = out if kind == out_type else op.Cast(out, to=int(out_type))
    nothing = op.ConstantOfShape(_integers(0, 0, 0, 0))  # the states that only a backward pass needs
    return out, _last_state(last), nothing


def _libraries() -> tuple[Any, Any]:
    """ONNX's operators and its graphs; they come with the extra, and are there when somebody exports."""
    return import_module("onnxscript").opset18, import_module("onnx_ir")


def _integers(*values: int) -> Any:
    return _libraries()[0].Constant(value_ints=list(values))


def _unsqueezed(value: Any, axis: int) -> Any:
    return _libraries()[0].Unsqueeze(value, _integers(axis))


def _matrix(matrix: Any, dimensions: int) -> Any:
    """B or C: (N, D) if constant, (L, batch, N, 1) per token, (L, batch, N, G) grouped."""
    op, _ = _libraries()
    if dimensions == 3:
        return _unsqueezed(op.Transpose(matrix, perm=[2, 0, 1]), 3)
    return op.Transpose(matrix, perm=[1, 0] if dimensions == 2 else [3, 0, 2, 1])


def _initial_state(form: Form, given: dict[str, Any], kind: Any) -> list[Any]:
    """The parts of the state before the first token, as `Step` has them."""
    op, ir = _libraries()
    rule = form.rule
    parts = rule.state_parts
    if "initial_state" not in given:
        zero, batch = op.Constant(value=ir.tensor([0.0], dtype=kind)), op.Shape(given["u"], start=0, end=1)
        heights = [form.N] * rule.taps + [1] * (rule.steps - 1)
        return [op.Expand(zero, op.Concat(batch, _integers(N, form.D), axis=0)) for N in heights]
    state = given["initial_state"]  # (batch, D, N), or (batch, D, N, parts)
    if parts == 1:
        return [op.Transpose(state, perm=[0, 2, 1])]
    split = [op.Transpose(op.Gather(state, op.Constant(value_int=i), axis=3), perm=[0, 2, 1]) for i in range(parts)]
    first = _integers(0), _integers(1), _integers(1)  # a step is the same for all states
    return [part if i < rule.taps else op.Slice(part, *first) for i, part in enumerate(split)]


def _last_state(parts: Sequence[Any]) -> Any:
    """(batch, D, N), or with the parts (batch, D, N, parts)."""
    op, _ = _libraries()
    if len(parts) == 1:
        return op.Transpose(parts[0], perm=[0, 2, 1])
    shape = op.Shape(parts[0])
    return op.Transpose(op.Concat(*[_unsqueezed(op.Expand(p, shape), 3) for p in parts], axis=3), perm=[0, 2, 1, 3])


def _scan(form: Form, arguments: Sequence[Any], state: Sequence[Any], reverse: bool) -> Sequence[Any]:
    """The node itself, given what `Step.forward` is given: the last state's parts, then y."""
    _, ir = _libraries()
    body = _body(form).clone()
    prefix = f"scan{next(_numbers)}"  # no name may be used again, neither around it nor in another body
    produced = [output for node in body for output in node.outputs]
    for value in (*body.inputs, *list(body.initializers.values()), *produced):
        value.name = f"{prefix}.{value.name}"
    inputs, states = list(body.inputs)[: len(arguments)], list(body.inputs)[len(arguments) :]
    constant = [True, *(n == 2 for n in form.dimensions), *[False] * (len(arguments) - 3)]
    scanned = []
    for value, argument, stays in zip(inputs, arguments, constant, strict=True):
        if stays:  # seen from outside
            ir.convenience.replace_all_uses_with(value, argument)
        else:
            scanned.append((value, argument))
    body.inputs.clear()
    body.inputs.extend([*states, *(value for value, _ in scanned)])
    node = ir.Node(
        "",
        "Scan",
        [*state, *(argument for _, argument in scanned)],
        [
            ir.AttrGraph("body", body),
            ir.AttrInt64("num_scan_inputs", len(scanned)),
            ir.AttrInt64s("scan_input_directions", [int(reverse)] * len(scanned)),
            ir.AttrInt64s("scan_output_directions", [int(reverse)]),
        ],
        num_outputs=len(state) + 1,
        version=OPSET,
    )
    for output in node.outputs:
        output.dtype = ir.DataType.DOUBLE if form.double else ir.DataType.FLOAT
    import_module("onnxscript.evaluator").default().nodes.append(node)
    return tuple(node.outputs)
