"""What the updates of a run add up to between two records: the parts of the loss, and times by two clocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

__all__ = ["PART", "Tally", "part_names"]

PART = "train_loss/"
"""Begins the name under which a record tells a part of the training loss."""


class Tally:
    """Sums since the last record, and the times of the whole run.

    `seconds` are those of the clock on the wall, `cpu_seconds` those that the processor worked for this process, in all
    its threads. Where other programs keep the machine busy, the first grow and the second hardly do.
    """

    def __init__(self) -> None:
        self.losses: dict[str, Tensor] = {}
        self.skipped = 0
        self.seconds = self.cpu_seconds = 0.0
        self.recorded_seconds = 0.0
        """Of `seconds`, those before the last record."""

    @contextmanager
    def timed(self) -> Iterator[None]:
        """What is done inside is training."""
        begin, cpu_begin = time.perf_counter(), time.process_time()
        yield
        self.seconds += time.perf_counter() - begin
        self.cpu_seconds += time.process_time() - cpu_begin

    def add(self, losses: Mapping[str, Tensor]) -> None:
        """The parts of the loss of an update."""
        for name, loss in losses.items():
            self.losses[name] = self.losses[name] + loss if name in self.losses else loss

    def record(self, updates: int, samples: int, mean: Callable[[Tensor], float]) -> dict[str, float]:
        """Of so many updates since the last one, with so many samples, as a record tells it.

        Args:
            mean: Of a number over all processes.
        """
        losses = {name: mean(loss) / updates for name, loss in self.losses.items()}
        parts = {f"{PART}{name}": loss for name, loss in losses.items()} if len(losses) > 1 else {}
        told = {
            "train_loss": sum(losses.values()),
            **parts,
            "samples_per_second": samples / (self.seconds - self.recorded_seconds),
            "train_seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
        }
        if self.skipped:
            told["skipped"] = self.skipped
        self.losses, self.skipped, self.recorded_seconds = {}, 0, self.seconds
        return told

    def state(self, mean: Callable[[Tensor], float]) -> dict[str, Any]:
        """All of it, for a checkpoint."""
        return {
            "losses": {name: mean(loss) for name, loss in self.losses.items()},
            "skipped": self.skipped,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "recorded_seconds": self.recorded_seconds,
        }

    @classmethod
    def restored(cls, state: Mapping[str, Any], device: torch.device) -> Tally:
        """From what `state` told."""
        tally = cls()
        tally.losses = {name: torch.tensor(loss, device=device) for name, loss in state["losses"].items()}
        tally.skipped, tally.recorded_seconds = state["skipped"], state["recorded_seconds"]
        tally.seconds, tally.cpu_seconds = state["seconds"], state["cpu_seconds"]
        return tally


def part_names(record: Mapping[str, Any]) -> dict[str, str]:
    """The parts of the training loss in a record, by their names there, as people read them."""
    return {name: name.removeprefix(PART).replace("_", " ") for name in record if name.startswith(PART)}
