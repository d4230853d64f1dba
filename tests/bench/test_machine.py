"""The limits of the machine, and how a scan stands to them."""

from pathlib import Path

import pytest

from tests.bench.results import made_up
from tests.native import needs_native
from tests.systems import FUSED
from tustin.bench import machine
from tustin.bench.scan import Scans
from tustin.ops.scan.native import discretization_names

ROOT = Path(__file__).parents[2]


def test_rates_follow_the_model():
    result = Scans(made_up())
    assert result.limit("gemm") == pytest.approx(200e9)
    assert result.limit("copy") == pytest.approx(20e9)
    rates = {rate.discretization: rate for rate in result.rates()}
    assert list(rates) == list(FUSED)
    mamba = rates["mamba"]
    assert mamba.updates == pytest.approx(5e9)
    assert mamba.gemm_ratio == pytest.approx(40)
    assert mamba.attainable == pytest.approx(200e9 / 18)
    assert mamba.share == pytest.approx(18 / 40)
    assert mamba.traffic == pytest.approx(5e9 * 12 / 16)
    assert mamba.traffic_share == pytest.approx(5e9 * 12 / 16 / 20e9)


@needs_native
def test_the_operations_of_every_native_rule_are_counted():
    assert set(machine.MULTIPLICATIONS) == set(discretization_names())
    assert set(machine.DIVISIONS) <= set(machine.MULTIPLICATIONS)


def test_the_documentation_counts_the_same_operations():
    lines = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| `")]
    assert {rule: int(total) for rule, *_, total, _ in rows} == machine.MULTIPLICATIONS
    for rule, *parts, total, besides in rows:
        assert sum(int(part.split(":")[0]) for part in parts) == int(total), rule
        assert ("division" in besides) == (rule in machine.DIVISIONS)


def test_the_load_is_what_the_cores_do_now(monkeypatch, tmp_path):
    stat = tmp_path / "stat"
    stat.write_text("cpu  10 20 30 400 50 1 2 3 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n", encoding="ascii")
    monkeypatch.setattr(machine, "_STAT", stat)
    assert machine._busy_ticks() == 10 + 20 + 30 + 1 + 2 + 3
    assert machine._load(0.01) == 0
    stat.unlink()
    monkeypatch.setattr("os.getloadavg", lambda: (1.5, 0.0, 0.0))
    assert machine._load() == 1.5
