"""The picture of a run."""

from __future__ import annotations

import pytest
from PIL import Image

from tustin.cli import main
from tustin.train import curves

PARTS = [
    {"updates": 3, "train_loss": 2.0, "train_loss/boxes": 1.5, "train_loss/masks": 0.5, "box_ap75": 0.0},
    {"updates": 6, "train_loss": 1.0, "train_loss/boxes": 1.0, "train_loss/masks": 0.0, "box_ap75": 40.0},
]


@pytest.fixture
def drawn(monkeypatch):
    figures = []
    monkeypatch.setattr(curves, "save_figure", lambda path, draw: figures.append(draw()))
    return figures


def test_every_part_of_the_loss_has_a_line(drawn, tmp_path):
    curves.draw_curves(tmp_path / "curves.png", PARTS, "a run")
    losses, metrics = drawn[0].axes
    assert [line.get_label() for line in losses.lines] == ["total", "boxes", "masks"]
    assert [list(line.get_ydata()) for line in losses.lines] == [[2.0, 1.0], [1.5, 1.0], [0.5, 0.0]]
    assert list(losses.lines[0].get_xdata()) == [3, 6]
    assert [line.get_label() for line in metrics.lines] == ["box AP at IoU 0.75"]


def test_a_loss_of_one_part_and_an_epoch_without_evaluation(drawn, tmp_path):
    curves.draw_curves(tmp_path / "curves.png", [{"updates": 1, "train_loss": 2.0}], "a run")
    losses, metrics = drawn[0].axes
    assert [line.get_label() for line in losses.lines] == ["training loss"]
    assert not metrics.lines


def test_the_command_leaves_a_picture(tmp_path, capsys):
    words = ["--updates", "2", "--run.device", "cpu", "--run.threads", "1", "--out", str(tmp_path / "out")]
    assert main(["train", "digits", *words]) == 0
    assert "best update " in capsys.readouterr().out
    with Image.open(tmp_path / "out" / "curves.png") as picture:
        assert picture.width > 1000
