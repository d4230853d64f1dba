"""The example that finds poles again: their errors fall with the order that each rule declares."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tustin import DISCRETIZATIONS
from tustin.discretize import FUSED

FILE = Path(__file__).parents[2] / "examples" / "identify.py"


@pytest.fixture(scope="module")
def example() -> Iterator[ModuleType]:
    """The file as a module; it computes in float64 unless told otherwise."""
    spec = importlib.util.spec_from_file_location("identify", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = torch.get_default_dtype()
    sys.modules[spec.name] = module  # where its dataclass looks for it
    spec.loader.exec_module(module)
    yield module
    torch.set_default_dtype(before)
    del sys.modules[spec.name]


@pytest.mark.parametrize("discretization", [rule.name for rule in FUSED])
def test_slopes_are_the_declared_orders(example: ModuleType, discretization: str) -> None:
    """At even and at random times of a smooth input, and of one that is constant over each step."""
    rule = DISCRETIZATIONS[discretization]
    expected = {"even": rule.order, "random": rule.order, "held": rule.held_order}
    for name, order in expected.items():
        found = example.slope(*example.errors(discretization, example.SETTINGS[name]))
        assert found == pytest.approx(order, abs=0.4), f"{name}: {found}"


def test_three_samples_are_of_third_order(example: ModuleType) -> None:
    found = example.slope(*example.errors("true_hoh", example.SETTINGS["even"], (12, 24, 48)))
    assert found == pytest.approx(DISCRETIZATIONS["true_hoh"].order, abs=0.5)


def test_the_exact_outputs_agree(example: ModuleType) -> None:
    """An input that is held over very short steps is the smooth one."""
    delta = torch.full((1, 4000), 0.001, dtype=torch.float64)
    u = torch.sin((delta.cumsum(1) - 0.0005)[..., None] * example.FREQUENCIES).sum(-1)  # at the middle of each
    assert torch.allclose(example.held_output(u, delta), example.smooth_output(delta.cumsum(1)), rtol=0, atol=1e-5)


def test_it_draws_and_prints(example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "two.svg"
    example.main(["--rules", "zoh,true_bil", "--picture", str(picture)])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["rule", "zoh", "true_bil"]
    assert lines[-1] == f"drawn: {picture}"
    assert picture.read_text(encoding="utf-8").count("<svg") == 1
