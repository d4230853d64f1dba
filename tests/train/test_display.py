"""What a person sees of a run."""

import re

import pytest

from tests.train.small import small
from tustin.train import display, train


class Places(display.Display):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.places: list[str] = []
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)

    def update(self, step: int, updates: int, place: str) -> None:
        self.places.append(place)


def test_the_loss_is_shown_and_what_no_patch_reads(tmp_path) -> None:
    shown = Places()
    train(
        small(tmp_path, epochs=1, model__args={"depth": 1, "embed_dim": 16, "patch_size": 3, "stride": 3}),
        display=shown,
    )
    assert all(re.fullmatch(r"epoch 1/1(, update \d/5)?, loss \d\.\d{4}", place) for place in shown.places), (
        shown.places
    )
    unread = (
        "patches of 3 px leave a remainder of images of 8 x 8: 2 px at the bottom and 2 px at the right are not read"
    )
    assert f"WARNING: {unread}" in shown.lines


def test_lines_tell_the_time_left(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    monkeypatch.setattr(display.time, "monotonic", lambda: now)
    lines = display.Lines()
    for step in range(1, 41):
        lines.update(step, 100, f"update {step}/100, loss 1.0")
        now += 1.0
    assert capsys.readouterr().out == "update 32/100, loss 1.0, about 68 s left\n"
