"""The progress of a run: a bar on a terminal, plain lines elsewhere, and nothing when a program calls `train`."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from ..report import terminal
from .metrics import METRICS
from .tally import part_names

SECONDS_BETWEEN_LINES = 30.0


class Display:
    """Base class of displays of the progress of a run. It shows nothing itself."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass

    def line(self, text: str) -> None:
        pass

    def update(self, step: int, updates: int, place: str) -> None:
        """Called after an update, with the number of updates so far, their total, and a text with both and the loss."""

    def epoch(self, record: dict[str, Any], place: str) -> None:
        """Called after an evaluation or an epoch, with its record."""
        self.line(record_line(record, place))


class Lines(Display):
    """One line per epoch or evaluation, and some lines in between."""

    def __init__(self) -> None:
        self.last = time.monotonic()
        self.first: tuple[int, float] | None = None
        """Number and time of the first update that was seen."""

    def line(self, text: str) -> None:
        print(text, flush=True)
        self.last = time.monotonic()

    def update(self, step: int, updates: int, place: str) -> None:
        now = time.monotonic()
        begun, since = self.first = self.first or (step, now)
        if now - self.last > SECONDS_BETWEEN_LINES:
            left = (now - since) / (step - begun) * (updates - step) if step > begun else 0.0
            self.line(f"{place}, about {terminal.duration(left)} left" if left else place)


class Bar(Display):
    """The same lines, and below them a bar with the time left."""

    def __init__(self) -> None:
        self.progress = terminal.bar(stderr=False)
        self.bar = self.progress.add_task("starting", total=None)

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.progress.stop()

    def line(self, text: str) -> None:
        self.progress.console.print(text, soft_wrap=True)

    def update(self, step: int, updates: int, place: str) -> None:
        self.progress.update(self.bar, completed=step, total=updates, description=place)


class WithTensorBoard(Display):
    """Another display, and TensorBoard files in the output folder beside it."""

    def __init__(self, display: Display, folder: str) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise RuntimeError("run.tensorboard needs TensorBoard: pip install 'tustin[tensorboard]'") from error
        self.display, self.writer = display, SummaryWriter(folder)

    def __enter__(self) -> Self:
        self.display.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.display.__exit__(kind, error, at)
        self.writer.close()

    def line(self, text: str) -> None:
        self.display.line(text)

    def update(self, step: int, updates: int, place: str) -> None:
        self.display.update(step, updates, place)

    def epoch(self, record: dict[str, Any], place: str) -> None:
        self.display.epoch(record, place)
        for name, value in record.items():
            if isinstance(value, int | float):
                self.writer.add_scalar(name, value, record["updates"])


def for_this_output() -> Display:
    return Bar() if sys.stdout.isatty() else Lines()


def record_line(record: dict[str, Any], place: str) -> str:
    parts = [place, f"train loss {record['train_loss']:.4f}{_loss_parts(record)}"]
    parts += metrics_text(record)
    parts.append(f"{record['samples_per_second']:.0f} images/s")
    if "skipped" in record:
        parts.append(f"{record['skipped']} images skipped")
    if "unstable" in record:
        parts.append(f"WARNING: up to {record['unstable']:.1%} of a layer's steps leave the rule's stability interval")
    return ", ".join(parts)


def _loss_parts(record: Mapping[str, Any]) -> str:
    """In brackets, if there are several."""
    told = [f"{name} {record[key]:.4f}" for key, name in part_names(record).items()]
    return f" ({', '.join(told)})" if told else ""


def metrics_text(values: Mapping[str, Any]) -> list[str]:
    """The metrics of an evaluation among `values`, each with its name and unit."""
    of_training = ("train_loss", "samples_per_second", "train_seconds")
    return [metric_text(name, values[name]) for name in METRICS if name in values and name not in of_training]


def metric_text(name: str, value: float) -> str:
    metric = METRICS[name]
    return f"{metric.title} {value:.2f} %" if metric.unit == "%" else f"{metric.title} {value:.4f}"
