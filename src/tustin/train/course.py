"""How long a run is and when it is recorded: everything in updates, of which the data make an epoch."""

from __future__ import annotations

from dataclasses import dataclass

from .config import Config

POINTS = 10
"""Evaluations, at least, of a run that is counted in updates: fewer make no curve."""


@dataclass(frozen=True)
class Course:
    """The updates of a run, of an epoch, between two records and between two evaluations, and of the warm-up."""

    updates: int
    epoch: int
    record_every: int
    evaluate_every: int
    warmup: int

    @classmethod
    def of(cls, config: Config, batches: int) -> Course:
        """The course of a config whose data give so many batches an epoch."""
        warmup, run = config.optim.warmup_updates, config.run
        record_every = run.eval_updates or batches
        if config.updates and not run.eval_updates and run.eval_every == 1:
            record_every = min(batches, -(-config.updates // POINTS))
        return cls(
            updates=config.epochs * batches if config.updates is None else config.updates,
            epoch=batches,
            record_every=record_every,
            evaluate_every=record_every if run.eval_updates else record_every * run.eval_every,
            warmup=config.optim.warmup_epochs * batches if warmup is None else warmup,
        )

    def records_due(self, step: int) -> int:
        """How many records there must be after `step` updates; what is left at the end gets one of its own."""
        return step // self.record_every + int(step == self.updates and step % self.record_every > 0)

    def evaluates(self, step: int) -> bool:
        """Whether the record after `step` updates has an evaluation; the last one always has."""
        return step % self.evaluate_every == 0 or step == self.updates

    def epochs_at(self, step: int) -> int | float:
        """How often the data were gone through: a whole number at the end of an epoch."""
        return step // self.epoch if step % self.epoch == 0 else round(step / self.epoch, 2)

    def place(self, step: int) -> str:
        """Where a run is after `step` updates, for people."""
        counted = f"update {step}/{self.updates}"
        if self.updates % self.epoch:
            return counted
        epoch = f"epoch {-(-step // self.epoch)}/{self.updates // self.epoch}"
        return f"{epoch}, {counted}" if step % self.epoch else epoch
