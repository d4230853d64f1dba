"""The report of a study shows how fast the models infer, if that was measured into its folder."""

import json

import pytest

from tests.bench.models import OPTIONS, made_up
from tustin.report.speed import Speed
from tustin.study import speed
from tustin.study.report import write_report

from .studies import study, write


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path / "study", study())


def test_a_result_in_the_folder_gets_a_section(folder):
    without = write_report(folder)[0].read_text(encoding="utf-8")
    assert "Speed of inference" not in without
    (folder / "inference.json").write_text(json.dumps(made_up().facts()), encoding="utf-8")
    page = write_report(folder)[0].read_text(encoding="utf-8")
    for words in ("Speed of inference", "tie: bil, rk4", "What to deploy", 'id="plot-throughput"', 'id="plot-cost"'):
        assert words in page
        assert words not in without


def test_names_from_the_file_are_escaped(folder):
    facts = made_up().facts() | {"command": "<script>alert(1)</script>"}
    (folder / "inference.json").write_text(json.dumps(facts), encoding="utf-8")
    page = write_report(folder)[0].read_text(encoding="utf-8")
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page


@pytest.mark.parametrize("text", ["", "{}", "[1", '{"options": {}}', "\N{SNOWMAN}"])
def test_a_file_that_is_no_result_is_named(folder, text):
    (folder / "inference.json").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"inference\.json is not a result of 'tustin bench inference'"):
        write_report(folder)


def test_the_plots_have_every_rule_and_the_peer():
    result = Speed(made_up())
    assert [trace.name for trace in speed.throughput_plot(result).data] == [
        *OPTIONS.discretizations,
        "deit_tiny_patch16_224",
    ]
    cost = speed.cost_plot(result)
    assert [trace.name for trace in cost.data] == list(OPTIONS.discretizations[1:])
    assert all(trace.error_y.visible for trace in cost.data)
