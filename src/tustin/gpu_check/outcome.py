"""A check, what it found, and what became of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclass(frozen=True)
class Finding:
    """What a check found out."""

    status: str
    says: str
    """One sentence."""
    numbers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """One question, and how it is answered."""

    group: str
    name: str
    ask: Callable[[], Finding]


@dataclass(frozen=True)
class Outcome:
    """A check that was carried out."""

    group: str
    name: str
    status: str
    says: str
    numbers: Mapping[str, Any]
    seconds: float


def carry_out(check: Check) -> Outcome:
    """Ask. Whatever goes wrong is a finding, too: the other checks go on."""
    start = time.perf_counter()
    try:
        found = check.ask()
    except torch.OutOfMemoryError as error:
        found = Finding(FAILED, f"the GPU has too little free memory: {sentence(error)}")
    except Exception as error:
        found = Finding(FAILED, f"{type(error).__name__}: {sentence(error)}")
    return Outcome(check.group, check.name, found.status, found.says, found.numbers, time.perf_counter() - start)


def sentence(error: BaseException) -> str:
    """The first line of what an error says, without the name of the user's folder."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].replace(str(Path.home()), "~")[:300] if lines else "no reason given"
