"""Several ONNX forms of a scan, timed in onnxruntime and compared with the form that `tustin export` writes.

    python benchmarks/onnx_forms.py [--rounds 15] [--json forms.json] [--markdown docs/deployment.md]

All give the same result, and each is compared with `tustin.selective_scan` before it is timed:

    Scan               one step of ONNX's `Scan` for each token: what we write
    doubling, all      all chunks of T tokens at once, by log₂ T steps of doubling; then the chunks one by one, unrolled
    doubling, Scan     a chunk for each step of a `Scan`, by doubling
    tokens, Scan       a chunk for each step of a `Scan`: its coefficients at once, its tokens one by one
    unrolled           no loop: the step of every token is in the graph

They are called alternately. A time is a median, and a ratio the median over the turns with its interval.
"""

from __future__ import annotations

import argparse
import datetime
import shlex
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch.nn.functional import pad, softplus

from tustin import selective_scan
from tustin.bench import machine
from tustin.bench.worker import in_laps, time_once
from tustin.cli.output import print_rich
from tustin.discretize import get_discretization
from tustin.discretize.compact import recording
from tustin.report.block import Block
from tustin.report.formats import as_markdown, as_rich, escape_markdown, json_text
from tustin.report.measurement import Case, Options, Result
from tustin.report.table import Table, number
from tustin.report.timing import CONFIDENCE, Lap, Timing, lap_ratio
from tustin.support.files import write_text

BLOCK = Block("onnx_forms", "benchmarks")
SCAN, DOUBLING, DOUBLING_SCAN, TOKENS_SCAN, UNROLLED = (
    "Scan",
    "doubling, all",
    "doubling, Scan",
    "tokens, Scan",
    "unrolled",
)
CHUNKED = DOUBLING, DOUBLING_SCAN, TOKENS_SCAN
UNROLLED_UP_TO = 256
"""Tokens; a longer graph takes minutes to export."""
SECONDS = 12.0
"""For the calls of one rule, length and batch: no new turn begins later."""
TOLERANCE = 1e-4
"""Of the largest value."""


@dataclass(frozen=True)
class FormCase(Case, kind="onnx_form"):
    """A call of one form."""

    form: str
    T: int
    """Tokens in a chunk; 1 where there are no chunks."""
    discretization: str
    L: int
    batch: int


# --- the forms, in PyTorch --------------------------------------------------------------------------------------------


class Form(nn.Module):
    """y (batch, D, L) from u and delta (batch, D, L), B and C (batch, N, L)."""

    def __init__(self, form: str, T: int, discretization: str, A: Tensor) -> None:
        super().__init__()
        self.form, self.T, self.rule = form, T, get_discretization(discretization)
        self.register_buffer("A", A)

    def forward(self, u: Tensor, delta: Tensor, B: Tensor, C: Tensor) -> Tensor:
        if self.form == SCAN:
            return selective_scan(u, delta, self.A, B, C, delta_softplus=True, discretization=self.rule.name)
        L = u.shape[2]
        flat = [tensor.mT.unsqueeze(2) for tensor in (softplus(delta), u)]  # (batch, L, 1, D)
        tall = [tensor.mT.unsqueeze(3) for tensor in (B, C)]  # (batch, L, N, 1)
        parts = [*flat, *tall]
        if self.form == UNROLLED:
            y = self._unrolled(parts)
        else:
            chunks = -(-L // self.T)
            rest = chunks * self.T - L  # of steps of 0, which change nothing
            parts = [pad(part, (0, 0, 0, 0, 0, rest)).unflatten(1, (chunks, self.T)) for part in parts]
            y = self._all_chunks(parts) if self.form == DOUBLING else self._scan_over_chunks(parts)
        return y[:, :L, 0].mT

    def _terms(self, parts: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """α and β·v, (…, N, D)."""
        step, u, B, _ = parts
        alpha, (beta,) = self.rule.coefficients(step, step * self.A.mT)
        return alpha, (beta * u) * B

    def _unrolled(self, parts: Sequence[Tensor]) -> Tensor:
        h, ys = None, []
        for k in range(parts[0].shape[1]):
            token = [part[:, k] for part in parts]
            alpha, x = self._terms(token)
            h = x if h is None else alpha * h + x
            ys.append(token[-1].mT @ h)
        return torch.stack(ys, 1)

    def _all_chunks(self, parts: Sequence[Tensor]) -> Tensor:
        products, h = _doubled(*self._terms(parts), axis=2)
        before = [torch.zeros_like(h[:, 0, -1])]
        for chunk in range(h.shape[1] - 1):
            before.append(products[:, chunk, -1] * before[-1] + h[:, chunk, -1])
        h = h + products * torch.stack(before, 1).unsqueeze(2)
        return (parts[-1].mT @ h).flatten(1, 2)

    def _scan_over_chunks(self, parts: Sequence[Tensor]) -> Tensor:
        def chunk(h: Tensor, parts: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
            alpha, x = self._terms(parts)
            if self.form == DOUBLING_SCAN:
                products, x = _doubled(alpha, x, axis=1)
                states = x + products * h.unsqueeze(1)
            else:
                in_turn = []
                for a, b in zip(alpha.unbind(1), x.unbind(1), strict=True):
                    h = a * h + b
                    in_turn.append(h)
                states = torch.stack(in_turn, 1)
            return states[:, -1].clone(), parts[-1].mT @ states

        N, D = self.A.mT.shape
        first = parts[0].new_zeros(parts[0].shape[0], N, D)
        _, y = scan(chunk, first, [part.movedim(1, 0) for part in parts])
        return y.movedim(0, 1).flatten(1, 2)


def _doubled(alpha: Tensor, x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """The products of α from the first token on, and the states of a chunk that begins with zeros.

    Nothing is divided, so products that underflow are zeros, as they should be.
    """
    T, reach = x.shape[axis], 1
    while reach < T:
        early, late = ([t.narrow(axis, 0, T - reach) for t in (alpha, x)], alpha.narrow(axis, reach, T - reach))
        x = torch.cat([x.narrow(axis, 0, reach), x.narrow(axis, reach, T - reach) + late * early[1]], axis)
        alpha = torch.cat([alpha.narrow(axis, 0, reach), late * early[0]], axis)
        reach *= 2
    return alpha, x


# --- as ONNX ----------------------------------------------------------------------------------------------------------


def exported(module: Form, arguments: Sequence[Tensor]) -> Any:
    """The graph for any batch."""
    with warnings.catch_warnings(action="ignore"), torch.no_grad(), recording():
        program = torch.onnx.export(
            module.eval(),
            tuple(arguments),
            dynamic_shapes=tuple({0: torch.export.Dim.DYNAMIC} for _ in arguments),
            opset_version=18,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    return program.model_proto


def count(graph: Any) -> int:
    """Its nodes, with those inside of loops."""
    inner = [attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g")]
    return len(graph.node) + sum(map(count, inner))


def session_of(content: bytes, threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3  # errors only
    options.add_session_config_entry("session.force_spinning_stop", "1")  # its threads would slow whoever is next
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


# --- the measurement --------------------------------------------------------------------------------------------------


def made_up(batch: int, D: int, N: int, L: int) -> list[Tensor]:
    """u, delta, B and C; the steps are those of a new Mamba, about 0.05."""
    random = torch.Generator().manual_seed(0)
    shapes = (batch, D, L), (batch, D, L), (batch, N, L), (batch, N, L)
    u, delta, B, C = (torch.randn(shape, generator=random) for shape in shapes)
    return [u, delta - 3, B, C]


def forms(L: int, chunks: Sequence[int]) -> list[tuple[str, int]]:
    """Each with its T."""
    chunked = [(form, T) for form in CHUNKED for T in chunks]
    return [(SCAN, 1), *chunked, *([(UNROLLED, 1)] if L <= UNROLLED_UP_TO else [])]


def measure(options: Options, chunks: Sequence[int], D: int, N: int, command: str) -> Result:
    """All forms of a rule, length and batch in turns."""
    facts = machine.describe("cpu", "onnxruntime")
    timings: dict[Case, Timing] = {}
    files: dict[str, dict[str, int]] = {}
    rounds = options.rounds or 1
    A = -torch.arange(1.0, N + 1).repeat(D, 1)
    for rule in options.discretizations:
        for L in options.lengths:
            contents = {}
            for form, T in forms(L, chunks):
                proto = exported(Form(form, T, rule, A), made_up(2, D, N, L))
                contents[form, T] = proto.SerializeToString()
                opset = max(opset.version for opset in proto.opset_import)
                size = len(contents[form, T])
                files[f"{rule} {L} {form} {T}"] = {"nodes": count(proto.graph), "bytes": size, "opset": opset}
            for batch in options.batch_sizes:
                cases = [FormCase(form, T, rule, L, batch, threads=options.threads) for form, T in contents]
                print(f"{rule}, L {L}, batch {batch} ...", flush=True)
                timings |= time_forms(cases, contents, A, made_up(batch, D, N, L), rounds)
    date = datetime.date.today().isoformat()
    return Result("onnx_forms", command, date, options, facts, rounds, 1, timings, notes={"files": files})


def time_forms(
    cases: Sequence[FormCase], contents: dict[tuple[str, int], bytes], A: Tensor, arguments: list[Tensor], rounds: int
) -> dict[Case, Timing]:
    """The calls of each, after its result was found correct."""
    u, delta, B, C = arguments
    rule = cases[0].discretization
    expected = selective_scan(u, delta, A, B, C, delta_softplus=True, discretization=rule).numpy()
    sessions = []
    for case in cases:
        content = contents[case.form, case.T]
        sessions.append(session := session_of(content, case.threads))
        names = [value.name for value in session.get_inputs()]
        arrays = {name: tensor.numpy() for name, tensor in zip(names, arguments, strict=True)}
        error = np.abs(session.run(None, arrays)[0] - expected).max() / np.abs(expected).max()
        if not error <= TOLERANCE:
            raise RuntimeError(f"{case} differs from selective_scan by {error:.1e} of the largest value")
    calls = [lambda session=session: session.run(None, arrays) for session in sessions]
    there = range(len(cases))
    seconds = in_laps(lambda member: time_once(calls[member]), [there, there[::-1]], at_least=SECONDS, most=rounds)
    laps = [{Lap(0, 0, number): value for number, value in enumerate(one)} for one in seconds]
    return {case: Timing(one) for case, one in zip(cases, laps, strict=True)}


# --- the report -------------------------------------------------------------------------------------------------------


def tables(result: Result) -> list[Table]:
    """One for each rule and length."""
    return [_table(result, rule, L) for rule in result.options.discretizations for L in result.options.lengths]


def _table(result: Result, rule: str, L: int) -> Table:
    batches = result.options.batch_sizes
    here = [
        case for case in result.timings if isinstance(case, FormCase) and (case.discretization, case.L) == (rule, L)
    ]
    rows = []
    for form, T in dict.fromkeys((case.form, case.T) for case in here):
        file = result.notes["files"][f"{rule} {L} {form} {T}"]
        name = f"{form}, T {T}" if form in CHUNKED else form
        row = [name, str(file["nodes"]), f"{file['bytes']:,}", str(file["opset"])]
        for batch in batches:
            own, base = (FormCase(*who, rule, L, batch, threads=here[0].threads) for who in ((form, T), (SCAN, 1)))
            timing = result.timings[own]
            ratio = "1" if own == base else lap_ratio(timing, result.timings[base]).text(2)
            row += [number(1e3 * timing.median), ratio]
        rows.append(tuple(row))
    header = ["form", "nodes", "bytes", "opset"]
    header += [f"batch {batch}: {what}" for batch in batches for what in ("ms", "× Scan")]
    note = f"× Scan: the time divided by that of Scan, with its {CONFIDENCE:.0%} interval."
    return Table(f"{rule}-{L}", f"{rule}, {L} tokens", tuple(header), rows, note)


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def repeated(argv: Sequence[str]) -> str:
    """The command that makes the same run again: all options but where results go."""
    words = iter(argv)
    own = [word for word in words if word not in ("--json", "--markdown") or not next(words)]
    return shlex.join(["python", "benchmarks/onnx_forms.py", *own])


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--discretizations", default="bil,zoh", help="of one sample (default: bil,zoh)")
    parser.add_argument("--lengths", type=numbers, default=(197, 1025), help="tokens (default: 197,1025)")
    parser.add_argument("--batch-sizes", type=numbers, default=(1, 4), help="default: 1,4")
    parser.add_argument("--chunks", type=numbers, default=(8, 32), help="tokens in a chunk (default: 8,32)")
    parser.add_argument("--shape", type=int, nargs=2, default=[384, 16], metavar=("D", "N"), help="default: 384 16")
    parser.add_argument("--rounds", type=int, default=15, help="most calls of each form (default: 15)")
    parser.add_argument("--threads", type=int, help="default: as many as torch uses")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also renew the tables of this page")
    args = parser.parse_args(argv)
    if args.markdown:
        BLOCK.split(args.markdown.read_text(encoding="utf-8"), str(args.markdown))
    options = Options(
        threads=args.threads or torch.get_num_threads(),
        rounds=args.rounds,
        discretizations=tuple(args.discretizations.split(",")),
        batch_sizes=args.batch_sizes,
        lengths=args.lengths,
    )
    D, N = args.shape
    result = measure(options, args.chunks, D, N, repeated(sys.argv[1:] if argv is None else argv))
    summary = (
        f"{result.where} One scan with D {D} and N {N}, float32; at most {result.rounds} calls in turns{result.busy}."
    )
    found = tables(result)
    print_rich(summary, *(part for table in found for part in ("", *as_rich(table))))
    if args.json:
        write_text(args.json, json_text(result.facts()))
    if args.markdown:
        pages = "\n".join(as_markdown(table, level=3) for table in found)
        BLOCK.replace(args.markdown, f"Measured by `{result.command}`. {escape_markdown(summary)}\n\n{pages}")


if __name__ == "__main__":
    main()
