"""`tustin bench mambavision`: one model, two scans."""

import importlib.util

import pytest

from tests.bench.models import result_of
from tests.bench.results import timing
from tustin.bench import mambavision
from tustin.bench.stand_in import OURS, SLOW, MambaVisionCase
from tustin.report.measurement import Options, Result


def made_up() -> Result:
    seconds = {OURS: 0.1, SLOW: 0.3}
    cases = [MambaVisionCase(scan=scan, batch=8, training=training) for training in (False, True) for scan in seconds]
    return result_of("mambavision", Options(rounds=2), {case: timing(*[seconds[case.scan]] * 2) for case in cases}, {})


def test_the_table_and_the_way_back_from_data() -> None:
    outcome = mambavision.outcome(made_up())
    [table] = outcome.tables
    assert table.rows == [
        ("inference, batch 8", "300 ±0%", "100 ±0%", "3.0"),
        ("training step, batch 8", "300 ±0%", "100 ±0%", "3.0"),
    ]
    again = Result.from_facts(outcome.facts())
    assert mambavision.outcome(again).tables == outcome.tables


def test_without_the_model_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match="mambavision is not installed; get it with 'pip install --no-deps mamba"):
        mambavision.run(Options(), "", lambda *progress: None)
