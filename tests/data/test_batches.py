"""Batches are functions of seed, epoch and index, whoever loads them."""

import numpy as np
import pytest
import torch

from tustin.data import Digits, Order, evaluation_batches, training_batches
from tustin.data.digits import shifted


def same(one, other):
    assert one.keys() == other.keys()
    return all(torch.equal(one[key], other[key]) if isinstance(one[key], torch.Tensor) else True for key in one)


def test_an_epoch_shows_every_sample_at_most_once():
    keys = Order(size=103, batch_size=10, seed=0).keys(epoch=0)
    assert keys.shape == (10, 10, 2)
    assert len(np.unique(keys[..., 0])) == 100
    assert keys[..., 0].max() < 103


def test_order_depends_on_seed_and_epoch_only():
    order = Order(100, 10, seed=3)
    assert np.array_equal(order.keys(2), Order(100, 10, seed=3).keys(2))
    assert not np.array_equal(order.keys(2), order.keys(3))
    assert not np.array_equal(order.keys(2), Order(100, 10, seed=4).keys(2))


def test_repeats_show_fewer_samples_more_often():
    index = Order(90, 10, seed=0, repeats=3).keys(0)[..., 0]
    assert np.array_equal(np.unique(index, return_counts=True)[1], [3] * 30)


def test_too_few_samples():
    with pytest.raises(ValueError, match="a batch of 20 samples is larger than the training set of 10"):
        Order(10, 20, seed=0)


def test_starting_in_the_middle_gives_the_same_batches():
    data, order = Digits(training=True, shift=1), Order(1347, 256, seed=0)
    whole = list(training_batches(data, order, 0, 8))  # more than an epoch, which has five
    rest = list(training_batches(data, order, 3, 8))
    assert len(whole) == 8
    assert all(same(one, other) for one, other in zip(whole[3:], rest, strict=True))
    assert not torch.equal(whole[0]["labels"], whole[5]["labels"])


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_change_nothing(workers):
    data, order = Digits(training=True, shift=1), Order(1347, 256, seed=0)
    here = list(training_batches(data, order, 0, 4))
    there = list(training_batches(data, order, 0, 4, workers=workers))
    assert all(same(one, other) for one, other in zip(here, there, strict=True))


def test_processes_and_accumulation_share_a_batch():
    data, order = Digits(training=True), Order(1347, 64, seed=0)
    whole = next(iter(training_batches(data, order, 0, 1)))["images"]
    parts = [
        part["images"]
        for process in range(2)
        for part in training_batches(data, order, 0, 1, process, processes=2, accumulate=4)
    ]
    assert [len(part) for part in parts] == [8] * 8
    assert torch.equal(torch.cat(parts).flatten(1).sum(1).sort()[0], whole.flatten(1).sum(1).sort()[0])


def test_evaluation_sees_every_sample_once():
    data = Digits(training=False)
    labels = [b["labels"] for process in range(2) for b in evaluation_batches(data, 64, process, processes=2)]
    assert torch.cat(labels).bincount().equal(data.labels.bincount())


def test_digits_are_split_and_scaled():
    train, test = Digits(training=True), Digits(training=False)
    assert (len(train), len(test)) == (1347, 450)
    images = train.__getitems__([(0, 0), (1, 0)])["images"]
    assert images.shape == (2, 1, 8, 8)
    assert images.abs().max() <= 1
    assert test.labels.bincount(minlength=10).min() >= 43


def test_shifted_moves_whole_images():
    images = torch.arange(1, 10, dtype=torch.uint8).reshape(1, 1, 3, 3).repeat(9, 1, 1, 1)
    moved = shifted(images, torch.arange(9), 1)
    assert len({tuple(image.flatten().tolist()) for image in moved}) == 9
    assert torch.equal(moved[4], images[4])  # the seed in the middle moves nothing
    assert torch.equal(moved[0][0, 1:, 1:], images[0][0, :2, :2])
    assert moved[0][0, 0].sum() == 0
