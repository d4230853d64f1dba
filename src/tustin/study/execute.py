"""One run of a study, in whatever process: it trains, or continues, and leaves its result in a file."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

import torch

from ..discretize import RuleFile
from ..models import Diagnosis
from ..support.signals import Interrupted
from ..train import METRICS, Config, Display, Diverged, RunFolder, train
from ..train.engine import SIZES
from ..train.folder import BEST, EMA, LAST, SUMMARY, TRAINING
from ..train.record import environment
from .results import TIMES, Result

Keep: TypeAlias = Literal["best", "all", "nothing"]
"""What stays of the output folder of a run that is done."""

FOR_CONTINUING = (TRAINING, LAST, EMA, ".lock")
TO_REMOVE = ".remove"
"""An empty file in a folder of which nothing stays once its run has a result."""


@dataclass(frozen=True)
class Run:
    """What a process must know to carry out one run."""

    discretization: str
    """As the study names it: the rule, or the control."""
    config: Config
    result: Path
    """The file to write."""
    keep: Keep
    rules: tuple[RuleFile, ...] = ()
    """Files with rules of the user's own, as they were when the study was started."""

    @property
    def seed(self) -> int:
        return self.config.seed

    @property
    def folder(self) -> RunFolder:
        assert self.config.out is not None
        return RunFolder(self.config.out)


@dataclass(frozen=True)
class Outcome:
    """How a process has ended a run."""

    kind: Literal["recorded", "stopped", "refused", "crashed"]
    """There is a result; a signal came and the state is saved; it could not begin; the process is gone."""
    message: str = ""


Ended: TypeAlias = Generator[list[tuple[Run, Outcome]], None, None]
"""What has ended since it was last asked: sometimes nothing, and at the end no more."""


def execute(run: Run) -> Outcome:
    """Train as the run says and write its result.

    A run that fails in training is a result as well, and keeps its files. What fails before would fail every run: a
    folder that is not there, say. It is refused, as is any trouble with files.
    """
    folder, training = run.folder, _Training()
    try:
        for file in run.rules:
            file.run()
        _forget_what_cannot_continue(folder)
        summary = train(run.config, display=training)
    except Interrupted:
        return Outcome("stopped")
    except Exception as error:
        message = " ".join(str(error).split())
        if not isinstance(error, ValueError | RuntimeError | OSError):  # nobody wrote this for a user
            message = f"{type(error).__name__}: {message}"
        if isinstance(error, OSError) or not training.begun:
            return Outcome("refused", message)
        failed(run, message, error.diagnosis if isinstance(error, Diverged) else None).write(run.result)
    else:
        result = _done(run, summary)
        _tidy(folder, run.keep)
        result.write(run.result)  # if this does not come about: it follows from the summary and the metrics as well
        remove_remains(folder)
    return Outcome("recorded")


def _tidy(folder: RunFolder, keep: Keep) -> None:
    if keep == "nothing":
        (folder / TO_REMOVE).touch()
    elif keep == "best":
        for name in FOR_CONTINUING:
            (folder / name).unlink(missing_ok=True)


def remove_remains(folder: RunFolder) -> None:
    """The folder of a run that has a result, if nothing of it shall stay. What says so goes last."""
    if (folder / TO_REMOVE).exists():
        for path in folder.path.iterdir():
            if path.name != TO_REMOVE:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        (folder / TO_REMOVE).unlink()
    if folder.path.exists() and not any(folder.path.iterdir()):
        folder.path.rmdir()


class _Training(Display):
    """Learns that data and model are there and the loop begins."""

    begun = False

    def __enter__(self) -> Self:
        self.begun = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass


def _forget_what_cannot_continue(folder: RunFolder) -> None:
    """What is damaged: the whole run, unless there is a checkpoint, from which the rest is written again."""
    try:
        if folder.read_summary() and folder.read_metrics() and (folder / BEST).exists():
            return
    except ValueError:
        pass
    (folder / SUMMARY).unlink(missing_ok=True)
    try:
        state = folder.read_state()
    except RuntimeError:
        state = None
    if state is None:
        folder.clear()


def _done(run: Run, summary: dict[str, Any]) -> Result:
    curve = _curve(run.folder)
    return Result(
        discretization=run.discretization,
        seed=run.seed,
        status="done",
        metrics={name: value for name, value in summary["best"].items() if name in METRICS and name not in TIMES},
        best_epoch=summary["best_epoch"],
        best_update=summary["best"].get("updates"),
        train_seconds=summary["train_seconds"],
        cpu_seconds=summary.get("cpu_seconds"),
        samples_per_second=_speed(run, curve),
        sizes={name: summary[name] for name in SIZES if name in summary},
        curve=curve,
        environment=summary["environment"],
    )


def failed(run: Run, message: str, diagnosis: Diagnosis | None = None) -> Result:
    """The result of a run that did not reach its end, with as much of its curve as there is."""
    settings = run.config.run
    try:
        curve = _curve(run.folder)
    except ValueError:  # why the run failed matters more, and the run writes them again if it continues
        curve = []
    device = torch.accelerator.current_accelerator(check_available=True) if settings.device == "auto" else None
    return Result(
        discretization=run.discretization,
        seed=run.seed,
        status="failed",
        error=message,
        diagnosis=diagnosis.as_facts() if diagnosis else None,
        train_seconds=curve[-1]["train_seconds"] if curve else 0.0,
        cpu_seconds=curve[-1].get("cpu_seconds") if curve else None,
        samples_per_second=_speed(run, curve),
        curve=curve,
        environment=environment(device or torch.device("cpu"), run.config.model.discretization)
        | {"threads": settings.threads},
    )


def _curve(folder: RunFolder) -> list[dict[str, Any]]:
    """The numbers of every record; a table in one, such as the IoU of each class, stays in the folder of the run."""
    return [
        {name: value for name, value in record.items() if not isinstance(value, dict)}
        for record in folder.read_metrics()
    ]


def _speed(run: Run, curve: list[dict[str, Any]]) -> float:
    """Samples per second over the whole of the training, evaluation aside."""
    return curve[-1]["updates"] * run.config.optim.batch_size / curve[-1]["train_seconds"] if curve else 0.0
