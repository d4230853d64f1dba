"""Which samples make a batch: a pure function of (seed, epoch, index), so that a run can continue in the middle.

A sample is asked for by a key, its index and a seed. The seed decides everything random about it, so neither the
process that loads it nor what was loaded before matters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from ..support.processes import usable_cores

Key: TypeAlias = tuple[int, int]
"""Index and seed of a sample."""
Batch: TypeAlias = dict[str, Any]
"""Tensors by name; "error" alone if it could not be loaded."""


class BatchSource(Protocol):
    """A dataset that makes whole batches."""

    def __len__(self) -> int: ...

    def __getitems__(self, keys: list[Key]) -> Batch: ...


@dataclass(frozen=True)
class Order:
    """The order of the samples. Each epoch has a new random order. A last batch that is not full is left out.

    With `repeats` an epoch has the same length, but each of its samples occurs this many times in a row.
    """

    size: int
    batch_size: int
    seed: int
    repeats: int = 1

    def __post_init__(self) -> None:
        if self.size < self.batch_size:
            raise ValueError(f"a batch of {self.batch_size} samples is larger than the training set of {self.size}")

    @property
    def batches(self) -> int:
        """Number of batches in an epoch; samples that do not fill a batch are left out."""
        return self.size // self.batch_size

    def keys(self, epoch: int) -> np.ndarray[tuple[int, int, int], np.dtype[np.int64]]:
        """(batches, batch_size, 2): index and seed of every sample of the epoch."""
        random = np.random.default_rng([self.seed, epoch])
        kept = self.batches * self.batch_size
        index = random.permutation(self.size).repeat(self.repeats)[:kept]
        seeds = random.integers(2**63, size=kept)
        return np.stack([index, seeds], axis=-1).reshape(self.batches, self.batch_size, 2)


@dataclass(frozen=True)
class _Stream:
    """The keys of every forward pass of one process, from update `start` to `stop`."""

    order: Order
    start: int
    stop: int
    process: int
    processes: int
    accumulate: int

    def __len__(self) -> int:
        return (self.stop - self.start) * self.accumulate

    def __iter__(self) -> Iterator[list[Key]]:
        epoch, keys = -1, None
        for update in range(self.start, self.stop):
            if keys is None or update // self.order.batches != epoch:
                epoch = update // self.order.batches
                keys = self.order.keys(epoch)
            batch = keys[update % self.order.batches]
            for part in np.split(batch[self.process :: self.processes], self.accumulate):
                yield [(int(index), int(seed)) for index, seed in part]


def training_batches(
    data: BatchSource,
    order: Order,
    start: int,
    stop: int,
    process: int = 0,
    processes: int = 1,
    accumulate: int = 1,
    workers: int = 0,
) -> Iterator[Batch]:
    """The batches of the updates from `start` up to `stop`, for the process number `process` of `processes`.

    Each update has `accumulate` batches.
    """
    if order.batch_size % (processes * accumulate):
        raise ValueError(
            f"optim.batch_size {order.batch_size} must be divisible by {processes} processes x {accumulate} "
            "accumulation steps"
        )
    return _load(data, _Stream(order, start, stop, process, processes, accumulate), workers)


def evaluation_batches(
    data: BatchSource, batch_size: int, process: int = 0, processes: int = 1, workers: int = 0
) -> Iterator[Batch]:
    """Batches of all samples, each once, divided among the processes."""
    mine = range(process, len(data), processes)
    keys = [[(index, 0) for index in mine[i : i + batch_size]] for i in range(0, len(mine), batch_size)]
    return _load(data, keys, workers)


def _load(data: BatchSource, keys: Any, workers: int) -> Iterator[Batch]:
    loader = DataLoader(
        cast("Dataset[Any]", data),
        batch_sampler=keys,
        num_workers=min(workers, usable_cores()),  # more only get in each other's way
        collate_fn=_as_it_is,
        pin_memory=torch.accelerator.is_available(),
        generator=torch.Generator(),  # or it would take a number from the global one
    )
    for batch in loader:
        if "error" in batch:  # raised here, because an exception from a worker carries its traceback in its message
            raise ValueError(batch["error"])
        yield batch


def _as_it_is(batch: Any) -> Any:
    return batch
