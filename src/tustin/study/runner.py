"""A study from start to end: what is missing is run, wherever an engine carries it out, and every end is recorded."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol

from ..discretize import imported_files
from ..support.files import remove_unfinished
from ..support.signals import Interrupted, StopRequest, stop_requests
from ..train import Config, RunFolder
from .display import Display
from .execute import Ended, Keep, Outcome, Run, failed, remove_remains
from .plan import config_of
from .results import PLAN, Plan, Result, Study, read_study, result_path, run_folder


class Engine(Protocol):
    """Carries out runs in other processes, here or elsewhere."""

    def carry_out(self, runs: Sequence[Run], stop: StopRequest) -> Ended:
        """Until all have ended. When a stop is requested no other run begins, and those in progress save and end."""


def run_study(
    plan: Plan,
    config: Config,
    folder: Path,
    engine: Engine,
    display: Display | None = None,
    keep: Keep = "best",
    retry_failed: bool = False,
) -> Study:
    """Carry out what is missing of the plan and return the whole study; what is there already is not done again.

    A run whose process is lost, to a kill or for want of memory, continues once, after the others; the second time it
    has failed. `Interrupted` means that a signal stopped it after the runs in progress have saved: the next call
    continues.
    """
    folder, display = folder.absolute(), display or Display()
    with RunFolder(folder).locked(), stop_requests() as stop:
        for name in ("results", "runs"):
            (folder / name).mkdir(exist_ok=True)
        remove_unfinished(folder / "results")
        plan.write(folder / PLAN)
        study = _ready_to_go_on(folder, display, retry_failed)
        if study.results:
            display.line(f"{len(study.results)} of {len(plan.runs())} runs have a result already")
        rules = tuple(imported_files())
        runs = [
            Run(which[0], config_of(plan, config, folder, *which), result_path(folder, *which), keep, rules)
            for which in study.missing
        ]
        with display.of(study, folder):
            crashed = _carry_out(runs, engine, plan.metric, display, stop)
            if crashed and not stop.number:
                crashed = _carry_out([run for run, _ in crashed], engine, plan.metric, display, stop)
                for run, why in crashed:  # twice by now
                    _record_crash(run, why, display)
        study = read_study(folder)
        if stop.number and study.missing:
            done = f"{len(study.results)} of {len(plan.runs())} runs"
            raise Interrupted(
                stop.number, f"stopped after {done}; unfinished runs are saved; repeat the command to continue"
            )
    return study


def _ready_to_go_on(folder: Path, display: Display, retry_failed: bool) -> Study:
    """The study as it is, after damaged results were set aside, and failed ones too if they are to be tried again."""
    study = read_study(folder)
    for path, why in study.damaged.items():
        aside = path.with_name(f"{path.name}.corrupt")
        os.replace(path, aside)
        display.line(f"{why}; it was renamed to {str(aside)!r}, and the run is repeated")
    for result in study.results:
        if result.status == "done":
            remove_remains(RunFolder(run_folder(folder, result.discretization, result.seed)))
        elif retry_failed:
            result_path(folder, result.discretization, result.seed).unlink()
    return read_study(folder)


def _carry_out(
    runs: Sequence[Run], engine: Engine, metric: str, display: Display, stop: StopRequest
) -> list[tuple[Run, str]]:
    """Until all have ended; returns those whose process was lost, and how."""
    crashed = []
    with closing(engine.carry_out(runs, stop)) as progress:
        told_of_stop = False
        for ended in progress:
            for run, outcome in ended:
                if outcome.kind == "crashed":
                    display.line(f"{run.discretization}, seed {run.seed}: {outcome.message}")
                    crashed.append((run, outcome.message))
                else:
                    _take(run, outcome, metric, display, stop)
            if stop.number and not told_of_stop:
                display.line("stopping: the runs in progress save first; press Ctrl-C again to stop without waiting")
                told_of_stop = True
            display.refresh()
    return crashed


def _take(run: Run, outcome: Outcome, metric: str, display: Display, stop: StopRequest) -> None:
    """Read the result that a process says it has written, or do what else it says."""
    if outcome.kind == "refused":
        raise RuntimeError(f"{run.discretization}, seed {run.seed}: {outcome.message}")
    if outcome.kind == "stopped":
        stop.number = stop.number or signal.SIGTERM
        return
    result = Result.read(run.result)
    if result.status == "done" and metric not in result.metrics:
        raise ValueError(f"the runs do not measure {metric!r} but {', '.join(result.metrics)}; give another --metric")
    display.ended(result)


def _record_crash(run: Run, why: str, display: Display) -> None:
    result = failed(run, f"{why}, twice")
    result.write(run.result)
    if run.folder.path.exists():
        remove_unfinished(run.folder.path)
    display.ended(result)
