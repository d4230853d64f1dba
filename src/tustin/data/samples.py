"""Samples by their keys, and what happens to those that cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from .batches import Key

Sample = TypeVar("Sample")


def read_samples(
    keys: list[Key], read: Callable[[int, int], Sample], training: bool, skip_corrupt: bool
) -> tuple[list[Sample], int]:
    """What `read` gives for each index and seed, and how many it could not read, because it raised ValueError.

    With `skip_corrupt`, in training a readable sample of the batch takes the place of such a one, so that the batch
    keeps its size; in evaluation it is left out.
    """
    samples: list[Sample] = []
    reason = ValueError("there is no sample")
    for index, seed in keys:
        try:
            samples.append(read(index, seed))
        except ValueError as error:
            if not skip_corrupt:
                raise ValueError(f"{error}; --data.skip_corrupt true counts and skips such files") from error
            reason = error
    if training and not samples:
        raise ValueError(f"none of the {len(keys)} samples of a batch can be read, e.g.: {reason}")
    skipped = len(keys) - len(samples)
    if training:
        samples += [samples[i % len(samples)] for i in range(skipped)]
    return samples, skipped
