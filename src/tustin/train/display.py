"""What a person sees of a run: a bar on a terminal, plain lines elsewhere, nothing where a program is in charge."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Self

from .metrics import METRICS

SECONDS_BETWEEN_LINES = 30.0


class Display:
    """Shows nothing; the others are made of it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass

    def line(self, text: str) -> None:
        pass

    def update(self, step: int, batches: int, epochs: int) -> None:
        """After an update: how many are done, and how many an epoch has."""

    def epoch(self, record: dict[str, Any], epochs: int) -> None:
        self.line(epoch_line(record, epochs))


class Lines(Display):
    """A line an epoch, and one now and then inside a long epoch."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def line(self, text: str) -> None:
        print(text, flush=True)
        self.last = time.monotonic()

    def update(self, step: int, batches: int, epochs: int) -> None:
        if time.monotonic() - self.last > SECONDS_BETWEEN_LINES:
            self.line(f"epoch {(step - 1) // batches + 1}/{epochs}, update {(step - 1) % batches + 1}/{batches}")


class Bar(Display):
    """The lines of the epochs above a bar with the time that is left."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        self.progress = Progress(*columns, transient=True, refresh_per_second=2)
        self.bar = self.progress.add_task("starting", total=None)

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.progress.stop()

    def line(self, text: str) -> None:
        self.progress.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def update(self, step: int, batches: int, epochs: int) -> None:
        epoch = (step - 1) // batches + 1
        self.progress.update(self.bar, completed=step, total=batches * epochs, description=f"epoch {epoch}/{epochs}")


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

    def update(self, step: int, batches: int, epochs: int) -> None:
        self.display.update(step, batches, epochs)

    def epoch(self, record: dict[str, Any], epochs: int) -> None:
        self.display.epoch(record, epochs)
        for name, value in record.items():
            self.writer.add_scalar(name, value, record["epoch"])


def for_this_output() -> Display:
    return Bar() if sys.stdout.isatty() else Lines()


def epoch_line(record: dict[str, Any], epochs: int) -> str:
    parts = [f"epoch {record['epoch']}/{epochs}", f"train loss {record['train_loss']:.4f}"]
    shown = ("train_loss", "samples_per_second", "train_seconds")
    parts += [metric_text(name, record[name]) for name in METRICS if name in record and name not in shown]
    parts.append(f"{record['samples_per_second']:.0f} images/s")
    if "skipped" in record:
        parts.append(f"{record['skipped']} images skipped")
    if "unstable" in record:
        parts.append(f"WARNING: up to {record['unstable']:.1%} of a layer's steps leave the rule's stability interval")
    return ", ".join(parts)


def metric_text(name: str, value: float) -> str:
    metric = METRICS[name]
    return f"{metric.title} {value:.2f} %" if metric.unit == "%" else f"{metric.title} {value:.4f}"
