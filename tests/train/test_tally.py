"""What a run adds up between two records, also over an interruption."""

from __future__ import annotations

import time

import pytest
import torch

from tustin.train.tally import Tally


def mean(value: torch.Tensor) -> float:
    return float(value)


def test_parts_of_the_loss_are_told_beside_their_sum():
    tally = Tally()
    for boxes, masks in ((1.0, 4.0), (3.0, 6.0)):
        tally.add({"boxes": torch.tensor(boxes), "masks": torch.tensor(masks)})
    tally.seconds = 2.0
    told = tally.record(updates=2, samples=8, mean=mean)
    assert (told["train_loss"], told["train_loss/boxes"], told["train_loss/masks"]) == (7.0, 2.0, 5.0)
    assert told["samples_per_second"] == 4
    assert tally.losses == {}


def test_a_loss_of_one_part_is_told_once():
    tally = Tally()
    tally.add({"classes": torch.tensor(3.0)})
    tally.seconds = 1.0
    assert [name for name in tally.record(1, 1, mean) if "loss" in name] == ["train_loss"]


def test_the_processor_is_not_charged_for_waiting():
    tally = Tally()
    with tally.timed():
        time.sleep(0.2)
    assert tally.seconds >= 0.2
    assert tally.cpu_seconds < 0.1


def test_a_restored_tally_goes_on():
    whole, first = Tally(), Tally()
    for tally in (whole, first):
        tally.add({"a": torch.tensor(1.25), "b": torch.tensor(0.5)})
        tally.skipped, tally.seconds, tally.cpu_seconds = 3, 5.0, 4.0
    second = Tally.restored(first.state(mean), torch.device("cpu"))
    for tally in (whole, second):
        tally.add({"a": torch.tensor(0.1), "b": torch.tensor(0.2)})
    assert second.record(2, 2, mean) == whole.record(2, 2, mean)


@pytest.mark.parametrize("records", [1, 3])
def test_throughput_is_that_since_the_last_record(records):
    tally = Tally()
    for _ in range(records):
        tally.add({"a": torch.tensor(1.0)})
        tally.seconds += 2.0
        told = tally.record(1, 10, mean)
    assert told["samples_per_second"] == 5
    assert told["train_seconds"] == 2.0 * records
