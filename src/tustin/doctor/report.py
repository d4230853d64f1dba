"""The facts about this machine for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..report import terminal

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["render"]

WHAT = "what it is, or why it is missing"


def render(facts: dict[str, Any]) -> list[Table | str]:
    """The facts of `collect` as text and tables for rich."""
    backends = terminal.table(["backend", "available", WHAT], words=["available", WHAT])
    for backend in facts["backends"]:
        reason = backend["missing_because"]
        backends.add_row(backend["name"], "no" if reason else "yes", reason or backend["description"])

    picks = [f"auto picks on {device}: {_picks(chosen)}" for device, chosen in facts["auto"].items()]
    return [terminal.pairs(_machine_rows(facts)), "", backends, "", *picks]


def _machine_rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    cpu = facts["cpu"]
    features = f" with {', '.join(cpu['features'])}" if cpu["features"] else ""
    usable = "" if cpu["usable_cores"] == cpu["cores"] else f", {cpu['usable_cores']} of them for this process"
    gpus = [f"{gpu['device']} {gpu['name']}" for gpu in facts["gpus"]] or [f"none: {facts['no_gpu_because']}"]
    return [
        *facts["versions"].items(),
        ("platform", facts["platform"]),
        ("processor", cpu["model"]),
        ("instructions", f"{cpu['level'] or cpu['architecture']}{features}; torch uses {cpu['torch_capability']}"),
        ("cores", f"{cpu['cores']}{usable}; threads that torch uses: {cpu['torch_threads']}"),
        *(("GPU", gpu) for gpu in gpus),
    ]


def _picks(chosen: dict[str, str]) -> str:
    """One name if every rule runs on it; otherwise each backend with its rules."""
    rules: dict[str, list[str]] = {}
    for rule, backend in chosen.items():
        rules.setdefault(backend, []).append(rule)
    if len(rules) == 1:
        return next(iter(rules))
    return "; ".join(f"{backend} for {', '.join(names)}" for backend, names in rules.items())
