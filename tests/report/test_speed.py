"""The speed of models: who is fastest, what is a tie, and the paper beside it."""

from dataclasses import replace

from tests.bench import models
from tests.bench.models import OPTIONS, made_up, seconds_of, speed
from tustin.report.formats import as_latex, as_markdown
from tustin.report.speed_tables import conclusions, fastest_table, relative_table, scenarios_table, summary


def rows(table):
    return {row[0]: row[1:] for row in table.rows}


def test_fastest_names_ties_and_the_paper_beside():
    found = rows(fastest_table(speed()))
    assert list(found) == ["1", "4", "8", "16", "32", "64", "128", "256", "512"]
    assert found["1"][0] == "tie: bil, rk4"
    assert found["1"][5:] == ("no", "bil", "13.46", "74.28")
    assert found["512"] == ("–", "–", "–", "–", "–", "–", "bil", "0.21", "4804.37")


def test_a_winner_beyond_noise_stands_alone():
    def cost(case, number):
        return seconds_of(case, number) * (0.9 if case.candidate.discretization == "bil" else 1)

    found = rows(fastest_table(speed(cost=cost)))
    assert found["8"][0] == "bil"
    assert found["8"][3] == "rk4"
    assert found["8"][4].startswith("+11.")
    assert found["8"][5] == "yes"


def test_after_few_rounds_nobody_is_fastest_and_nobody_ties(monkeypatch):
    monkeypatch.setattr(models, "ROUNDS", 4)
    assert rows(fastest_table(speed()))["8"][0] == "too few rounds"
    assert rows(scenarios_table(speed()))["high throughput"][1] == "too few rounds"


def test_scenarios_have_gain_and_interval_and_the_paper_beside():
    found = rows(scenarios_table(speed()))
    assert found["real-time"][:2] == ("1", "tie: bil, rk4")
    assert found["real-time"][2].endswith(" ms")
    assert found["real-time"][3].startswith("+5.")
    assert found["real-time"][4:] == ("yes", "1", "bil", "13.46 ms", "0.37 % faster")
    assert found["high throughput"][0] == "32"
    assert found["high throughput"][5:] == ("512", "bil", "4804 images/s", "0.67 % faster")
    table = scenarios_table(speed(replace(OPTIONS, batch_sizes=(1, 4))))
    assert list(rows(table)) == ["real-time", "high throughput"]
    assert "was not measured" in table.note


def test_another_model_is_not_compared_with_the_paper():
    small = replace(OPTIONS, model="vim_small_patch16_224")
    for table in conclusions(speed(small)):
        assert not any("paper" in name for name in table.header)


def test_tables_are_markdown_and_latex():
    for table in conclusions(speed()):
        assert as_markdown(table, 3).startswith("### ")
        assert "≥" not in as_latex(table)
        assert r"\begin{tabular}" in as_latex(table)


def test_the_relative_table_has_the_noise_and_the_peer():
    relative = rows(relative_table(speed()))
    assert relative["zoh"] == ("1",) * 5
    assert relative["deit_tiny_patch16_224"][0].startswith("0.60")
    assert "zoh again" in relative


def test_the_summary_says_where_how_and_whether_others_used_the_machine():
    text = summary(speed())
    assert "AMD EPYC, 2 threads on 2 cores" in text
    assert "images of 224 x 224; 16 rounds in turns, in 2 processes, with freed memory kept." in text
    busy = made_up()
    busy = replace(busy, machine=busy.machine | {"load": 2.3})
    assert "(load 2.3): do not trust" in summary(type(speed())(busy))
