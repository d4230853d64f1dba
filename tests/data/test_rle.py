"""COCO's masks: polygons and runs become pixels and back, and what is neither is refused before C++ sees it."""

import sys

import pytest
import torch

from tustin.data.rle import decode, encode


def test_polygon():
    mask = decode([[1, 1, 5, 1, 5, 3, 1, 3]], 6, 8)
    expected = torch.zeros(6, 8, dtype=torch.uint8)
    expected[1:3, 1:5] = 1
    assert torch.equal(mask, expected)


def test_polygons_of_one_object_are_joined():
    apart = decode([[0, 0, 2, 0, 2, 2, 0, 2], [4, 4, 6, 4, 6, 6, 4, 6]], 8, 8)
    assert apart.sum() == 8
    assert apart[:2, :2].all()
    assert apart[4:6, 4:6].all()


def test_runs_go_down_the_columns():
    mask = decode({"size": [3, 2], "counts": [1, 2, 3]}, 3, 2)
    assert mask.tolist() == [[0, 0], [1, 0], [1, 0]]


@pytest.mark.parametrize("size", [(1, 1), (13, 17), (200, 3)])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_compressed_runs_and_back(size, share):
    mask = torch.rand(*size, generator=torch.Generator().manual_seed(0)) < share
    assert torch.equal(decode(encode(mask), *size).bool(), mask)


@pytest.mark.parametrize(
    ("segmentation", "why"),
    [
        ([], "polygons"),
        ([[1, 2, 3, 4]], "three points"),
        ([[1, 2, 3, 4, 5, 6, 7]], "three points"),
        ([[float("nan")] * 6], "three points"),
        ([["1"] * 6], "three points"),
        (None, "neither"),
        ("7", "neither"),
        ({"counts": [16]}, "neither"),
        ({"size": [4, 5], "counts": [20]}, r"size \[4, 5\], but its image \[4, 4\]"),
        ({"size": [4, 4], "counts": [3, 14]}, "add up"),
        ({"size": [4, 4], "counts": [-1, 17]}, "add up"),
        ({"size": [4, 4], "counts": [8.0, 8.0]}, "add up"),
        ({"size": [4, 4], "counts": "zzz"}, "add up"),
        ({"size": [4, 4], "counts": "\x01"}, "add up"),
        ({"size": [4, 4], "counts": 16}, "add up"),
    ],
)
def test_nonsense_is_refused(segmentation, why):
    with pytest.raises(ValueError, match=why):
        decode(segmentation, 4, 4)


def test_missing_library_is_told_in_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "faster_coco_eval", None)
    with pytest.raises(RuntimeError, match=r"pip install 'tustin\[detection\]'"):
        decode([[1, 1, 5, 1, 5, 3]], 6, 8)
