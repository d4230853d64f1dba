"""What a person sees of a study while it runs, on the error stream: a table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..report import terminal
from ..train.display import metric_text
from . import status
from .results import Plan, Result, Study


class Display:
    """Base class of what shows the progress of a run; it shows nothing itself."""

    @contextmanager
    def of(self, study: Study, folder: Path) -> Iterator[None]:
        """While this study runs."""
        yield

    def line(self, text: str) -> None:
        pass

    def ended(self, result: Result) -> None:
        """A run has a result."""

    def refresh(self) -> None:
        """Some time has passed."""


class Lines(Display):
    """A line for each run that ends."""

    @contextmanager
    def of(self, study: Study, folder: Path) -> Iterator[None]:
        self.progress = Progress(study, folder)
        yield

    def line(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def ended(self, result: Result) -> None:
        self.progress.add(result)
        self.line(f"{self.progress.text()}: {result_text(result, self.progress.study.plan)}")


class Table(Lines):
    """The rules with what they have reached, below a bar with the time that is left; a failure stays above it."""

    def __init__(self) -> None:
        self.console = terminal.console(stderr=True)

    @contextmanager
    def of(self, study: Study, folder: Path) -> Iterator[None]:
        from rich.live import Live

        with super().of(study, folder), Live(console=self.console, auto_refresh=False, transient=True) as self.live:
            self.refresh()
            yield

    def line(self, text: str) -> None:
        self.console.print(text, soft_wrap=True)

    def ended(self, result: Result) -> None:
        self.progress.add(result)
        if result.status == "failed":
            self.line(result_text(result, self.progress.study.plan))

    def refresh(self) -> None:
        from rich.console import Group
        from rich.progress_bar import ProgressBar

        progress = self.progress
        bar = ProgressBar(total=progress.total, completed=progress.work(), width=60)
        told = status.facts(progress.study, progress.folder)
        self.live.update(Group("", progress.text(), bar, "\n", status.table(told)), refresh=True)


class Progress:
    """Counts runs and parts of runs, and guesses the time that is left."""

    def __init__(self, study: Study, folder: Path) -> None:
        self.study, self.folder = study, folder
        self.total = len(study.plan.runs())
        self.begin, self.work_before = time.monotonic(), self.work()

    def add(self, result: Result) -> None:
        results, missing = [*self.study.results, result], list(self.study.missing)
        missing.remove((result.discretization, result.seed))
        self.study = replace(self.study, results=results, missing=missing)

    def work(self) -> float:
        """Runs done; one in progress counts in part."""
        study = self.study
        return len(study.results) + sum(status.part_done(self.folder, study.plan, *run) for run in study.missing)

    def text(self) -> str:
        failed = sum(result.status == "failed" for result in self.study.results)
        parts = [f"{len(self.study.results)} of {self.total} runs"]
        parts += [f"{failed} failed"] if failed else []
        work = self.work()
        if self.work_before < work < self.total:
            seconds = (time.monotonic() - self.begin) / (work - self.work_before) * (self.total - work)
            parts.append(f"about {terminal.duration(seconds)} left")
        return ", ".join(parts)


def result_text(result: Result, plan: Plan) -> str:
    who = f"{result.discretization}, seed {result.seed}"
    if result.status == "failed":
        return f"{who}: FAILED, {result.error}"
    reached: Any = result.metrics.get(plan.metric)
    when = f"update {result.best_update}" if plan.by_updates else f"epoch {result.best_epoch}"
    reached = f"{metric_text(plan.metric, reached)} at {when}" if reached is not None else "done"
    return f"{who}: {reached}, {result.train_seconds:.1f} s of training"


def for_this_output() -> Display:
    return Table() if sys.stderr.isatty() else Lines()
