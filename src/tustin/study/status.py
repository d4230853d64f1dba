"""How far a study is: what `tustin study status` prints, and what is seen while it runs."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..report import terminal
from ..train.folder import RunFolder
from ..train.metrics import METRICS
from .results import Plan, Study, run_folder

if TYPE_CHECKING:
    from rich.table import Table


def facts(study: Study, folder: Path) -> dict[str, Any]:
    """Counts, and for each rule what it has reached so far, as plain data."""
    plan = study.plan
    failures = [result for result in study.results if result.status == "failed"]
    return {
        "folder": str(folder),
        "recipe": plan.recipe,
        "metric": plan.metric,
        "runs": len(plan.runs()),
        "done": len(study.results) - len(failures),
        "failed": len(failures),
        "missing": len(study.missing),
        "discretizations": [_discretization_facts(study, folder, method) for method in plan.methods],
        "failures": [{"discretization": r.discretization, "seed": r.seed, "error": r.error} for r in failures],
        "damaged": list(study.damaged.values()),
    }


def _discretization_facts(study: Study, folder: Path, discretization: str) -> dict[str, Any]:
    plan = study.plan
    results = [result for result in study.results if result.discretization == discretization]
    values = [result.metrics[plan.metric] for result in results if plan.metric in result.metrics]
    best = max if METRICS[plan.metric].higher_is_better else min
    begun = {
        seed: part
        for name, seed in study.missing
        if name == discretization and (part := part_done(folder, plan, name, seed))
    }
    return {
        "discretization": discretization,
        "done": sum(result.status == "done" for result in results),
        "failed": sum(result.status == "failed" for result in results),
        "begun": {str(seed): part for seed, part in begun.items()},
        "mean": statistics.fmean(values) if values else None,
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "best": best(values) if values else None,
    }


def part_done(folder: Path, plan: Plan, discretization: str, seed: int) -> float:
    """The share of a run that is behind it and recorded."""
    try:
        records = RunFolder(run_folder(folder, discretization, seed)).read_metrics()
    except ValueError:  # the run writes them again when it continues
        records = []
    counted, total = plan.length()
    return float(records[-1][counted] / total) if records and total else 0.0


def render(told: dict[str, Any]) -> list[Table | str]:
    """`facts` for a person."""
    counts = [f"{told['done']} of {told['runs']} runs done"]
    counts += [f"{told[name]} {name}" for name in ("failed", "missing") if told[name]]
    lines: list[Table | str] = [f"{told['recipe']}: {', '.join(counts)}", "", table(told)]
    if told["failures"] or told["damaged"]:
        lines.append("")
    lines += [
        f"{failure['discretization']}, seed {failure['seed']}: FAILED, {failure['error']}"
        for failure in told["failures"]
    ]
    return lines + [f"{why}; the file will be renamed and the run repeated" for why in told["damaged"]]


def table(told: dict[str, Any]) -> Table:
    """The rules of `facts`, a line each."""
    metric = METRICS[told["metric"]]
    title = f"{metric.title}, {metric.unit}" if metric.unit else metric.title
    header = ("discretization", "done", "failed", f"{title}: mean", "std", "best so far", "in progress")
    shown = terminal.table(header, words=["in progress"])
    for row in told["discretizations"]:
        numbers = ("–" if row[name] is None else f"{row[name]:.2f}" for name in ("mean", "std", "best"))
        begun = ", ".join(f"seed {seed}: {part:.0%}" for seed, part in row["begun"].items())
        shown.add_row(row["discretization"], str(row["done"]), str(row["failed"] or "–"), *numbers, begun)
    return shown
