"""What was seen in a compiled kernel, kept on disk: reading machine code takes as long as many a compilation.

It is JSON in Triton's own cache, beside what Triton keeps there. Its name is a digest of all that decides on the code:
the sources of the kernel and of the functions that it is compiled with, the types of its arguments, its options, the
GPU, the version of Triton and its variables, and the way in which we read code.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from dataclasses import astuple
from pathlib import Path
from typing import Any

import torch
import triton
from triton.runtime.cache import get_cache_manager
from triton.runtime.jit import JITFunction

from . import flow, inspect
from .compile import Launch
from .inspect import Code, Instruction

_FILE = "tustin_code.json"
_ELSEWHERE = ("TRITON_CACHE_DIR", "TRITON_HOME")
"""Variables that say where things are kept, and not how they are compiled."""


def read(target: str, launch: Launch) -> Code | None:
    """What was kept of this launch; None if there is nothing, or nothing that can be read."""
    path = get_cache_manager(_key(target, launch)).get_file(_FILE)
    if path is None:
        return None
    try:
        registers, spills, shared, threads, instructions = json.loads(Path(path).read_text(encoding="utf-8"))
        return Code(registers, spills, shared, threads, tuple(Instruction(*one) for one in instructions))
    except (OSError, ValueError, TypeError):  # damaged: it is made again
        return None


def write(target: str, launch: Launch, code: Code) -> None:
    """Keep what was seen."""
    get_cache_manager(_key(target, launch)).put(json.dumps(astuple(code)), _FILE, binary=False)


def _key(target: str, launch: Launch) -> str:
    variables = {n: v for n, v in os.environ.items() if n.startswith("TRITON_") and n not in _ELSEWHERE}
    how = [triton.__version__, _reader(), target, variables, launch.kernel, launch.arguments, launch.options]
    return hashlib.sha256(json.dumps(how, default=_named, sort_keys=True).encode()).hexdigest()


@functools.cache
def _reader() -> str:
    sources = (Path(str(module.__file__)).read_bytes() for module in (flow, inspect))
    return hashlib.sha256(b"".join(sources)).hexdigest()


def _named(value: Any) -> str:
    """A function of Triton by its sources, and those of all that it calls; a tensor by its type; others by name."""
    if isinstance(value, JITFunction):
        return str(value.cache_key)
    return str(value.dtype if isinstance(value, torch.Tensor) else value)
