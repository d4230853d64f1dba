"""The pictures of the benchmarks of models show every rule, its interval and the noise."""

from dataclasses import replace

import pytest

from tests.bench.models import OPTIONS, made_up, made_up_resolution, speed
from tustin.bench import plots
from tustin.bench.resolution import Growth
from tustin.report.plot_style import save_figure
from tustin.report.speed import Speed
from tustin.report.timing import Timing


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_pictures_are_written_whole_and_the_same_every_time(tmp_path, ending):
    for name, draw in (
        ("inference", lambda: plots.draw_inference(speed())),
        ("resolution", lambda: plots.draw_resolution(Growth(made_up_resolution()))),
    ):
        paths = [tmp_path / f"{name}-{number}.{ending}" for number in (1, 2)]
        for path in paths:
            save_figure(path, draw)
        assert paths[0].read_bytes() == paths[1].read_bytes()
        assert len(paths[0].read_bytes()) > 10_000


def test_the_picture_shows_every_rule_its_interval_and_the_noise():
    left, right = plots.draw_inference(speed()).axes
    assert [text.get_text() for text in left.get_legend().get_texts()] == [
        *OPTIONS.discretizations,
        "deit_tiny_patch16_224",
    ]
    shown = {text.get_text() for text in right.get_legend().get_texts()}
    assert shown == {"noise: zoh against itself", "foh", "bil", "pol", "hoh", "rk4"}
    assert sum(line.get_linestyle() == "None" for line in right.get_lines()) >= 5
    time, space = plots.draw_resolution(Growth(made_up_resolution())).axes
    assert "where they cross" in {text.get_text() for text in time.get_legend().get_texts()}
    assert space.get_ylabel() == "MiB"


def test_a_picture_of_one_round_has_no_bars_and_one_of_one_rule_nothing_to_compare(tmp_path):
    one = speed(replace(OPTIONS, discretizations=("zoh",)))
    save_figure(tmp_path / "alone.png", lambda: plots.draw_inference(one))
    result = made_up()
    first = {
        case: Timing({lap: call for lap, call in timing.laps.items() if lap.round == 0})
        for case, timing in result.timings.items()
    }
    short = Speed(replace(result, timings=first))
    save_figure(tmp_path / "short.png", lambda: plots.draw_inference(short))
