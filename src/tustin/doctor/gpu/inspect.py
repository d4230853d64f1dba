"""What compiled code consists of: its instructions by kind and by loop, its registers and what it spills."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton import knobs

from .flow import innermost_loops

_KINDS: dict[str, dict[str, str]] = {  # the first pattern that fits the whole opcode; what fits none is "other"
    "cuda": {
        "global load": r"LDG.*|LDGSTS.*",
        "global store": r"STG.*",
        "atomic": r"ATOM.*|RED|RED\..*",
        "spill": r"LDL.*|STL.*",
        "shared": r"LDS.*|STS.*|LDSM.*|STSM.*",
        "exchange": r"SHFL.*|BAR.*|REDUX.*",
        "special": r"MUFU.*",
        "move": r"MOV.*|U?MOV.*|IMAD\.MOV.*|HFMA2.*|CS2R.*|S2U?R.*|U?LDC.*|R2UR.*|U?PRMT.*",
        "float": r"F(?:FMA|MUL|ADD|SEL|SETP|MNMX|SET|CHK|SWZADD).*|F2.*|D(?:FMA|MUL|ADD|SETP).*",
        "integer": r"U?(?:V?IADD|V?IMNMX|IMAD|ISETP|IABS|LEA|LOP|SHF|SGXT|SEL|PLOP|P2R|R2P|I2|POPC|FLO|BREV|VOTE).*",
        "control": r"BRA.*|EXIT.*|BSSY.*|BSYNC.*|BREAK.*|CALL.*|RET.*|NOP.*|WARPSYNC.*|DEPBAR.*|YIELD.*|ERRBAR.*",
    },
    "hip": {
        "global load": r"(?:global|buffer|flat)_load.*",
        "global store": r"(?:global|buffer|flat)_store.*",
        "atomic": r"(?:global|buffer|flat)_atomic.*|ds_(?:add|max|min|cmpst|inc|dec).*",
        "spill": r"scratch_.*",
        "exchange": r"ds_(?:b?permute|swizzle).*|s_barrier|v_(?:readlane|readfirstlane|permlane).*|.*_dpp",
        "shared": r"ds_.*",
        "special": r"v_(?:exp|log|rcp|rsq|sqrt|sin|cos)_.*",
        "move": r"[vs]_mov.*|v_accvgpr.*|s_load.*|v_perm_.*|v_pk_mov.*",
        "float": r"v_(?:pk_)?(?!mov)\w*_(?:f32|f64|f16|bf16)(?:_.*)?|v_(?:cndmask|div_).*",
        "control": r"s_(?:branch|cbranch|endpgm|waitcnt|nop|setpc|swappc|sleep|barrier).*",
        "integer": r"[vs]_.*",
    },
}
KINDS = (*_KINDS["cuda"], "other")


@dataclass(frozen=True)
class Instruction:
    """One instruction."""

    opcode: str
    kind: str
    loop: int | None
    """The innermost loop that it is in, counted as they stand in the code."""


@dataclass(frozen=True)
class Code:
    """A kernel as the GPU would run it."""

    registers: int
    """Of a thread; vector registers on AMD."""
    spills: int
    """Instructions that move registers to memory and back, and on AMD spilled registers."""
    shared: int
    """Bytes of shared memory of a program."""
    threads: int
    """Of a program."""
    instructions: tuple[Instruction, ...]

    def count(self, kind: str | None = None) -> int:
        """How many instructions there are, or how many of one kind."""
        return sum(kind is None or instruction.kind == kind for instruction in self.instructions)

    @property
    def loops(self) -> int:
        """How many loops there are."""
        return 1 + max((i.loop for i in self.instructions if i.loop is not None), default=-1)

    def executed(self, passes: Sequence[int], kind: str | None = None, once: int = 1) -> int:
        """Instructions that a thread executes if it goes through the loops that often, and `once` through the rest."""
        if len(passes) != self.loops:
            raise RuntimeError(f"the compiled code has {self.loops} loops, expected {len(passes)}")
        wanted = (i for i in self.instructions if kind is None or i.kind == kind)
        return sum(once if i.loop is None else passes[i.loop] for i in wanted)

    def mix(self) -> dict[str, int]:
        """Instructions by kind."""
        counted = Counter(instruction.kind for instruction in self.instructions)
        return {kind: counted[kind] for kind in KINDS if counted[kind]}


def inspect(kernel: Any) -> Code:
    """What there is to see in Triton's compiled kernel."""
    target, metadata = kernel.metadata.target, kernel.metadata
    threads = metadata.num_warps * target.warp_size
    if target.backend == "cuda":
        text = _disassemble(kernel.asm["cubin"])
        registers = int(_first(r"REG:(\d+)", text))
        instructions = tuple(_in_loops(_sass(text), "cuda"))
        spills = sum(instruction.kind == "spill" for instruction in instructions)
    else:
        text = kernel.asm["amdgcn"]
        registers = int(_first(r"\.vgpr_count:\s+(\d+)", text))
        instructions = tuple(_in_loops(_amdgcn(text), "hip"))
        spills = sum(int(_first(rf"\.{kind}_spill_count:\s+(\d+)", text)) for kind in ("vgpr", "sgpr"))
        spills += sum(instruction.kind == "spill" for instruction in instructions)
    return Code(registers, spills, metadata.shared, threads, instructions)


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    if not found:
        raise RuntimeError(f"the compiled code does not contain {pattern!r}; this version of Triton is not supported")
    return found[1]


def _disassemble(cubin: bytes) -> str:
    """The machine code as text, with the resources that it uses."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        command = [knobs.nvidia.cuobjdump.path, "-sass", "-res-usage", str(path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@dataclass(frozen=True)
class _Line:
    """An instruction as it stands in a listing."""

    opcode: str
    jump: int | None
    """The line that it may jump to."""
    goes_on: bool
    """Whether the next line may come after it."""


_SASS = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*);")


def _sass(text: str) -> list[_Line]:
    found = _SASS.findall(text)
    places = {int(address, 16): number for number, (address, *_) in enumerate(found)}
    lines = []
    for _, condition, opcode, operands in found:
        jump = re.search(r"0x([0-9a-f]+)\s*$", operands) if opcode.startswith("BRA") else None
        conditional = (condition and condition.strip() != "@PT") or re.match(r"\s*!?U?P\d", operands)
        ends = opcode.startswith(("BRA", "EXIT", "RET")) and not conditional
        lines.append(_Line(opcode, places[int(jump[1], 16)] if jump else None, not ends))
    return lines


def _amdgcn(text: str) -> list[_Line]:
    places: dict[str, int] = {}
    found: list[tuple[str, str]] = []
    for line in text.split(".Lfunc_end", 1)[0].splitlines():
        line = line.partition(";")[0].strip()
        if label := re.fullmatch(r"(\.LBB\w+):", line):
            places[label[1]] = len(found)
        elif re.match(r"(?:[vs]|ds|global|buffer|flat|scratch)_\w+", line):
            opcode, _, operands = line.partition(" ")
            found.append((opcode, operands.strip()))
    return [
        _Line(
            opcode,
            places[operands] if opcode.startswith(("s_branch", "s_cbranch")) else None,
            not opcode.startswith(("s_branch", "s_endpgm")),
        )
        for opcode, operands in found
    ]


def _in_loops(lines: list[_Line], backend: str) -> Iterator[Instruction]:
    successors = [
        {
            *([number + 1] if line.goes_on and number + 1 < len(lines) else []),
            *([line.jump] if line.jump is not None else []),
        }
        for number, line in enumerate(lines)
    ]
    for line, loop in zip(lines, innermost_loops(successors), strict=True):
        kinds = _KINDS[backend].items()
        kind = next((kind for kind, pattern in kinds if re.fullmatch(pattern, line.opcode)), "other")
        yield Instruction(line.opcode, kind, loop)
