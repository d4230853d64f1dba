"""The picture shows every rule, and what it shows is true."""

import os
from itertools import pairwise

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from tustin import DISCRETIZATIONS, Discretization, selective_scan
from tustin.report import rules_picture as picture

TRUE_FOH = DISCRETIZATIONS["true_foh"]
EXPLODING = Discretization(
    name="exploding",
    coefficients=lambda delta, z: (1 + z - 6 * z**2, (delta * (1 - 6 * z),)),
    alpha="1 + z − 6z²",
    betas=("Δ·(1 − 6z)",),
    order=1,
    held_order=1,
    exact_equilibrium=True,
    stable=(-0.5, 0),
    source="far outside its interval where the responses are drawn",
)

RULES = list(DISCRETIZATIONS.values())


def scan(rule, u):
    """The states of h' = A·h + u by the library's own scan."""
    one = torch.ones(1, 1, dtype=torch.float64)
    samples = torch.from_numpy(u)[None, None]
    delta = torch.full_like(samples, picture.DELTA)
    states = selective_scan(samples, delta, one * picture.A, one, one, discretization=rule, backend="reference")
    return states[0, 0].numpy()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_response_is_what_the_scan_computes(rule):
    u = np.random.default_rng(0).normal(size=50)
    np.testing.assert_allclose(picture.response(rule, u), scan(rule, u), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_frequency_response_is_the_transform_of_the_impulse_response(rule):
    impulse = np.zeros(256)
    impulse[1] = 1  # the first token has no step before it, and a rule may look at that
    omega = 2 * np.pi * np.arange(129) / (256 * picture.DELTA)
    expected = np.fft.rfft(np.roll(scan(rule, impulse), -1))
    np.testing.assert_allclose(picture.frequency_response(rule, omega), expected, rtol=0, atol=1e-12)


def test_true_first_order_hold_follows_the_ramp_exactly():
    t = np.arange(20) * picture.DELTA
    np.testing.assert_allclose(picture.response(TRUE_FOH, t), t - 1 + np.exp(-t), rtol=0, atol=1e-12)


def test_every_panel_names_every_rule():
    axes = picture.draw(RULES).axes
    assert len(axes) == 7
    for ax in axes:
        words = {word.strip(",") for text in ax.texts for word in text.get_text().split()}
        assert {rule.name for rule in RULES} <= words, ax.get_title("left")


def test_every_panel_draws_every_rule():
    for ax in picture.draw(RULES).axes:
        colours = [line.get_color() for line in ax.lines if len(line.get_xdata()) > 3]
        looks = [picture.Look.number(i).colour for i in range(len(RULES))]
        assert sorted(colours) == sorted([picture._EXACT["color"], *looks])


def test_rules_look_different():
    looks = [picture.Look.number(i) for i in range(36)]
    assert len({(look.colour, look.dashes) for look in looks}) == 36


def test_a_rule_that_explodes_does_not_crush_the_others():
    limits = [ax.get_ylim() for ax in picture.draw(RULES).axes]
    with_explosion = picture.draw([*RULES, EXPLODING]).axes
    assert np.abs(picture.response(EXPLODING, np.ones(19))).max() > 1e6
    for ax, (low, high) in zip(with_explosion, limits, strict=True):
        new_low, new_high = ax.get_ylim()
        assert new_high - new_low < 4 * (high - low)


def test_rk4_raw_is_seen_to_leave_the_unit_interval():
    ax = picture.draw([DISCRETIZATIONS["rk4_raw"]]).axes[0]
    texts = [text.get_text() for text in ax.texts]
    assert "z = −2.785" in texts
    assert "rk4_raw ↑" in texts
    assert ax.get_ylim()[1] > 1


def test_labels_do_not_overlap():
    sizes = [0.1, 0.2, 0.1, 0.1]
    places = picture._spread([0.0, 0.01, 0.02, 1.0], sizes)
    edges = [(place - size / 2, place + size / 2) for place, size in zip(places, sizes, strict=True)]
    assert edges[0][0] >= -1e-6
    assert edges[-1][1] <= 1 + 1e-6
    for (_, top), (bottom, _) in pairwise(edges):
        assert bottom >= top - 1e-6


# --- the file ---------------------------------------------------------------------------------------------------------


def test_png_is_a_picture_with_the_colours_of_the_rules(tmp_path):
    picture.save(tmp_path / "discretizations.png", RULES)
    pixels = imread(tmp_path / "discretizations.png")[..., :3]
    assert min(pixels.shape[:2]) > 1000
    for i in range(len(RULES)):
        near = np.abs(pixels - np.array(to_rgb(picture.Look.number(i).colour))).max(-1) < 0.01
        assert near.sum() > 100, RULES[i].name


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_same_rules_give_the_same_file(tmp_path, kind):
    files = [tmp_path / f"{name}.{kind}" for name in ("one", "two")]
    for file in files:
        picture.save(file, RULES)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_users_settings_of_matplotlib_neither_matter_nor_change(tmp_path):
    picture.save(tmp_path / "plain.svg", RULES)
    with matplotlib.rc_context({"font.size": 30, "lines.linewidth": 9, "axes.facecolor": "red"}):
        before = dict(matplotlib.rcParams)
        picture.save(tmp_path / "odd.svg", RULES)
        assert dict(matplotlib.rcParams) == before
    assert (tmp_path / "odd.svg").read_bytes() == (tmp_path / "plain.svg").read_bytes()


def test_ending_may_be_in_capitals(tmp_path):
    picture.save(tmp_path / "DISCRETIZATIONS.SVG", RULES[:1])
    assert b"<svg" in (tmp_path / "DISCRETIZATIONS.SVG").read_bytes()


def test_unknown_ending_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"discretizations\.bmp.*must end in \.png, \.svg, \.pdf"):
        picture.save(tmp_path / "discretizations.bmp", RULES)
    assert os.listdir(tmp_path) == []


def test_folder_in_the_place_of_the_file_is_refused(tmp_path):
    (tmp_path / "discretizations.png").mkdir()
    with pytest.raises(IsADirectoryError, match="it is a folder"):
        picture.save(tmp_path / "discretizations.png", RULES)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt(), ValueError("a bug")])
def test_failure_keeps_the_old_file_and_leaves_no_other(tmp_path, monkeypatch, error):
    def fail(discretizations):
        raise error

    file = tmp_path / "discretizations.png"
    file.write_bytes(b"the old picture")
    monkeypatch.setattr(picture, "draw", fail)
    with pytest.raises(type(error)):
        picture.save(file, RULES)
    assert file.read_bytes() == b"the old picture"
    assert os.listdir(tmp_path) == ["discretizations.png"]


def test_link_stays_a_link(tmp_path):
    (tmp_path / "real.svg").write_text("old")
    (tmp_path / "link.svg").symlink_to("real.svg")
    picture.save(tmp_path / "link.svg", RULES[:1])
    assert (tmp_path / "link.svg").is_symlink()
    assert "<svg" in (tmp_path / "real.svg").read_text(encoding="utf-8")


def test_file_has_the_usual_permissions(tmp_path):
    (tmp_path / "other").touch()
    picture.save(tmp_path / "discretizations.svg", RULES[:1])
    assert (tmp_path / "discretizations.svg").stat().st_mode == (tmp_path / "other").stat().st_mode
