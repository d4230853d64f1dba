"""Tables of training steps: their own bounds, and the paper's costs beside them."""

from dataclasses import replace

from tests.bench.models import OPTIONS, speed
from tustin.bench import training_tables
from tustin.bench.inference import checks


def test_training_is_held_to_its_own_bounds_beside_the_papers_costs():
    result = speed(replace(OPTIONS, batch_sizes=(8,)), training=True)
    steps, verdicts = training_tables.tables(result, checks(result))
    found = {row[0]: row[1:] for row in steps.rows}
    assert found["bil"][-1] == "−2.77 %"
    assert found["pol"][-1] == "−9.13 %"
    assert found["hoh"][-1] == "−11.23 %"
    assert found["zoh"][3:] == ("–", "–", "–")
    assert found["bil"][3].startswith("+5.")
    assert found["zoh again"][4] == "no"
    assert [row[1] for row in verdicts.rows] == ["≥ 1", "≥ 0.95", "≤ 1.6"]
    assert [row[4] for row in verdicts.rows] == ["yes", "yes", "yes"]
