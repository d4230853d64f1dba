"""How long a run is and when it is recorded: everything in updates, of which the data make an epoch."""

from __future__ import annotations

from dataclasses import dataclass

from .config import Config


@dataclass(frozen=True)
class Course:
    """The updates of a run, those of an epoch, those between two records, and those of the warm-up."""

    updates: int
    epoch: int
    record_every: int
    warmup: int

    @classmethod
    def of(cls, config: Config, batches: int) -> Course:
        """The course of a config whose data give so many batches an epoch."""
        warmup = config.optim.warmup_updates
        return cls(
            updates=config.epochs * batches if config.updates is None else config.updates,
            epoch=batches,
            record_every=config.run.eval_updates or batches,
            warmup=config.optim.warmup_epochs * batches if warmup is None else warmup,
        )

    def records_due(self, step: int) -> int:
        """How many records there must be after `step` updates; what is left at the end gets one of its own."""
        return step // self.record_every + int(step == self.updates and step % self.record_every > 0)

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
