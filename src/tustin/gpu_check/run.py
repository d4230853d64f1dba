"""Runs all checks, one after the other, and writes the file of results after each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .. import __version__, doctor
from ..report.formats import json_text
from ..report.terminal import Report
from ..support.files import write_text
from . import scans, speed, whole
from .device import Device
from .outcome import FAILED, PASSED, SKIPPED, Check, Outcome, carry_out
from .plan import Plan


class ChecksFailed(RuntimeError):
    """Raised if a check failed. The file of results says which."""

    exit_code = 3


def run(plan: Plan, device: Device, file: Path, progress: Report) -> dict[str, Any]:
    """Run every check. Write the results after each check, because an error on the GPU can end the process.

    Returns:
        The final content of the file.
    """
    waiting: list[Check] = [*scans.checks(plan, device), *whole.checks(plan, device), *speed.checks(plan, device)]
    done: list[Outcome] = []
    machine = doctor.collect()
    facts = _facts(device, machine, done, len(waiting))
    write_text(file, json_text(facts))
    for number, check in enumerate(waiting):
        progress(f"checking {check.group} {check.name}", number, len(waiting))
        done.append(carry_out(check))
        device.forget()
        facts = _facts(device, machine, done, len(waiting))
        write_text(file, json_text(facts))
    progress("checked", len(waiting), len(waiting))
    return facts


def _facts(device: Device, machine: dict[str, Any], done: Sequence[Outcome], total: int) -> dict[str, Any]:
    counted = Counter(outcome.status for outcome in done)
    return {
        "tustin": __version__,
        "complete": len(done) == total,
        "gpu": device.facts(),
        "counts": {status: counted[status] for status in (PASSED, FAILED, SKIPPED)} | {"all": total},
        "checks": [asdict(outcome) for outcome in done],
        "machine": machine,
    }
