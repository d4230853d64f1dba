"""Studies that take seconds, and what of their results must be the same bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.train.small import SMALL, weights
from tustin.study.display import Display
from tustin.study.execute import Keep, Outcome, Run, execute
from tustin.study.plan import Wishes, make_plan
from tustin.study.results import Study
from tustin.study.runner import Engine, run_study
from tustin.support.signals import StopRequest
from tustin.train import load_recipe

SETTINGS = {name: value for name, value in SMALL.items() if name != "run.threads"}
DISCRETIZATIONS = ["zoh", "bil"]
SEEDS = [0, 1]


class Here:
    """Carries out runs in this process, one after the other."""

    def __init__(self) -> None:
        self.carried_out: list[tuple[str, int]] = []

    def carry_out(self, runs: Sequence[Run], stop: StopRequest) -> Iterator[list[tuple[Run, Outcome]]]:
        for run in runs:
            self.carried_out.append((run.discretization, run.seed))
            yield [(run, execute(run))]


class Told(Display):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)


def study(
    folder: Path,
    engine: Engine | None = None,
    display: Display | None = None,
    keep: Keep = "best",
    retry_failed: bool = False,
    settings: dict[str, Any] | None = None,
    **wishes: Any,
) -> Study:
    """Carry out a small study: two rules, two seeds, two epochs of digits."""
    config = load_recipe("digits", SETTINGS | (settings or {}))
    plan = make_plan(
        "digits",
        config,
        folder,
        Wishes(**{"discretizations": DISCRETIZATIONS, "seeds": SEEDS, "control": False, **wishes}),
    )
    return run_study(plan, config, folder, engine or Here(), display, keep, retry_failed)


def bits(study: Study, folder: Path) -> list[Any]:
    """All that a study has found, times aside, and the weights of its best models."""
    times = {"train_seconds", "cpu_seconds", "samples_per_second"}
    return [
        (
            (result.discretization, result.seed, result.status, result.metrics, result.best_epoch),
            [{name: value for name, value in record.items() if name not in times} for record in result.curve],
            weights(folder / "runs" / f"{result.discretization}-{result.seed}", "best"),
        )
        for result in study.results
    ]
