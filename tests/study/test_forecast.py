"""What is told before any run."""

import json

import pytest

from tests.cli.test_cli import assert_one_error_line
from tustin.cli import main
from tustin.study.forecast import RunTime, forecast, lines
from tustin.study.signflips import detectable_gain, equal_band

from .small import SETTINGS
from .studies import plan
from .test_command import words

TIMES = {"zoh": RunTime(0.1, 1000, 2.0, 10), "no_state": RunTime(0.05, 1000, 1.0, 10)}


def test_what_seeds_can_show_and_how_long_they_take() -> None:
    of = plan(control="no_state")
    found = forecast(of, 0.5, TIMES, jobs=2)
    assert found.runs == 70
    assert found.detectable == detectable_gain(0.5, 10, 0.01)
    assert found.band == equal_band(0.5, 10, 0.01)
    assert found.seconds == pytest.approx(10 * (6 * 120 + 60) / 2)
    told = "\n".join(lines(of, found, True, TIMES))
    assert "a gain of 0.59 points would be shown with a probability of 80%" in told
    assert "within ±0.67 points" in told
    assert "about 65 min with 2 at a time" in told


def test_too_few_seeds_are_told() -> None:
    of = plan(seeds=5)
    found = forecast(of, None, {}, jobs=1)
    assert (found.detectable, found.band, found.seconds) == (None, None, None)
    assert "no difference can be shown: p would be 0.16 at best" in lines(of, found, False, {})[1]


def test_the_command(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["study", "plan", "digits", "--seeds", "7", "--discretizations", "zoh,bil", *words(SETTINGS)]
    assert main([*command, "--std", "0.4", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["runs"], told["pairs"], told["compared"], told["std"]) == (21, 7, 1, 0.4)
    assert set(told["run"]) == {"zoh", "no_state"}
    assert told["run"]["zoh"]["seconds"] > 0
    assert not (tmp_path / "runs" / "study-digits" / "study.json").exists(), "nothing has begun"
    assert main([*command, "--std", "-1"]) == 2
    assert_one_error_line(capsys, "--std", "above 0")
    assert main(["study", "plan"]) == 2
    assert_one_error_line(capsys, "needs the name or the path of a recipe")
