"""The loop over the tokens of a compiled scan: every instruction, and the line of our source that it is there for.

Triton writes into the machine code which line each instruction comes from, and through which calls: a stack of lines,
the innermost first.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from triton import knobs

from ...report.block import Block
from ...report.table import Table
from . import cases
from .compile import compile_for
from .inspect import inspect

BLOCK = Block("gpu listing", "doctor")
_PACKAGE = Path(__file__).parents[2]
_KERNEL, _DTYPE = "scan forward", "float32"


class Place(NamedTuple):
    """A line of our source."""

    file: str
    """Inside the package."""
    line: int

    @property
    def function(self) -> str:
        """The function that the line stands in; nothing between functions."""
        return next((name for name, first, last in _functions(self.file) if first <= self.line <= last), "")

    @property
    def text(self) -> str:
        """The code of the line."""
        return _source(self.file).splitlines()[self.line - 1].partition("  # ")[0].strip()

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@functools.cache
def _source(file: str) -> str:
    return (_PACKAGE / file).read_text(encoding="utf-8")


@functools.cache
def _functions(file: str) -> list[tuple[str, int, int]]:
    """Name, first and last line of each."""
    nodes = [node for node in ast.walk(ast.parse(_source(file))) if isinstance(node, ast.FunctionDef)]
    return [(node.name, node.lineno, node.end_lineno or node.lineno) for node in nodes]


@dataclass(frozen=True)
class Line:
    """An instruction as the disassembler shows it."""

    text: str
    opcode: str
    stack: tuple[Place, ...]
    """Where it comes from, innermost first; nothing where the compiler does not say."""


@dataclass(frozen=True)
class Listing:
    """The innermost loop of the forward pass."""

    target: str
    discretization: str
    lines: tuple[Line, ...]
    updates: int
    """Tokens times states that a thread does in one pass of the loop."""

    @property
    def per_update(self) -> float:
        """Instructions for each token and state."""
        return len(self.lines) / self.updates


def listing(target: str, discretization: str) -> Listing:
    """Compile the forward pass of a rule and read its loop."""
    case = cases.named(_KERNEL, discretization, _DTYPE)
    kernel = compile_for(target, case.launch)
    code = inspect(kernel)
    lines = parse(_disassemble(kernel.asm["cubin"]))
    if [line.opcode for line in lines] != [instruction.opcode for instruction in code.instructions]:
        raise RuntimeError("nvdisasm and cuobjdump show different code; this version of Triton is not supported")
    innermost = code.loops - 1
    inside = tuple(line for line, i in zip(lines, code.instructions, strict=True) if i.loop == innermost)
    options = case.launch.options
    return Listing(target, discretization, inside, options["UNROLL"] * options["BLOCK_D"] * cases.N // code.threads)


def _disassemble(cubin: bytes) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        command = [knobs.nvidia.nvdisasm.path, "--print-line-info-inline", "--print-code", str(path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


_MARK = re.compile(r'//## File "(?P<file>[^"]*)", line (?P<line>\d+)')
_CODE = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?P<text>(?:@!?U?P\w+\s+)?(?P<opcode>[A-Z][\w.]*)[^;]*);")


def parse(text: str) -> list[Line]:
    """The instructions in what nvdisasm prints: a stack of lines stands before all that come from it."""
    lines: list[Line] = []
    stack: list[Place] = []
    begun = False
    for row in text.splitlines():
        if mark := _MARK.search(row):
            stack = stack if begun else []
            begun = True
            if (path := Path(mark["file"])).is_relative_to(_PACKAGE):
                place = Place(path.relative_to(_PACKAGE).as_posix(), int(mark["line"]))
                stack += [place] if place.function else []
        elif code := _CODE.search(row):
            begun = False
            lines.append(Line(" ".join(code["text"].split()), code["opcode"], tuple(stack)))
    return lines


# --- for people and machines ------------------------------------------------------------------------------------------


def by_line(found: Listing) -> Table:
    """How many instructions each line of our source became, in the order of the source that calls it."""
    groups: dict[tuple[Place, ...], Counter[str]] = {}
    for line in sorted(found.lines, key=lambda line: line.stack[::-1]):
        groups.setdefault(line.stack[:2], Counter())[line.opcode.partition(".")[0]] += 1
    rows = []
    for stack, opcodes in groups.items():
        where, caller = (*(place.function for place in stack), "", "")[:2]
        number = sum(opcodes.values())
        what = ", ".join(f"{count} {opcode}" for opcode, count in opcodes.most_common())
        code = stack[0].text if stack else "unknown"
        rows.append((f"{where} < {caller}" if caller else where, code, what, number, f"{number / found.updates:.2f}"))
    rows.append(("all", "", "", len(found.lines), f"{found.per_update:.2f}"))
    return Table(
        "listing",
        f"The loop of {found.discretization} on {found.target}, by lines",
        ("function", "line", "opcodes", "instructions", "per update"),
        rows,
        f"Instructions of one thread in one pass through the innermost loop, forward, {_DTYPE}. Per update: divided by "
        f"the {found.updates} state updates of this pass. f < g: function f, called by g.",
        frozenset({"line", "opcodes"}),
    )


def as_text(found: Listing) -> str:
    """Every instruction in the order of the code, each with its line."""
    width = max(len(line.text) for line in found.lines)
    return "\n".join(f"{line.text:{width}}  {_origin(line)}".rstrip() for line in found.lines)


def _origin(line: Line) -> str:
    return f"{line.stack[0]} {line.stack[0].text}" if line.stack else ""


def as_facts(found: Listing) -> dict[str, Any]:
    """All of it as plain data."""
    return {
        "target": found.target,
        "discretization": found.discretization,
        "updates": found.updates,
        "per_token_and_state": found.per_update,
        "instructions": [{"text": line.text, "lines": [str(place) for place in line.stack]} for line in found.lines],
    }
