"""The choice of a backend, which all operators share, and the names that users import."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from tests.interpreter import needs_triton
from tests.native import needs_native, run_python
from tests.systems import CPU, system
from tustin import DISCRETIZATIONS, selective_scan
from tustin.ops import dispatch
from tustin.ops import native as library
from tustin.ops.dispatch import choose
from tustin.ops.scan import BACKENDS, native

ZOH, GPU = DISCRETIZATIONS["zoh"], torch.device("cuda")


@pytest.fixture
def asked_anew() -> Iterator[None]:
    """What was chosen before is forgotten, and so is what is chosen here."""
    dispatch._chosen.cache_clear()
    yield
    dispatch._chosen.cache_clear()


@needs_native
def test_a_library_without_a_built_in_rule(asked_anew: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after adding a rule to Python alone: "auto" takes the reference and says why, by name it is an error."""
    monkeypatch.setattr(native, "discretization_names", lambda: ("mamba", "bil"))
    x = system()
    with pytest.warns(UserWarning, match=r"the native backend cannot run it: .*'zoh' is not one .* \(mamba, bil\)"):
        out = selective_scan(**x, discretization="zoh")
    assert torch.equal(out, selective_scan(**x, discretization="zoh", backend="reference"))
    with pytest.raises(RuntimeError, match=r"'native' cannot be used: discretization 'zoh' is not one of those comp"):
        selective_scan(**x, discretization="zoh", backend="native")
    assert choose("selective_scan", "auto", CPU, DISCRETIZATIONS["bil"]) == "native"


@needs_triton
def test_triton_without_a_built_in_rule(asked_anew: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fused backend declares its own rules."""
    from tustin.ops.scan import triton_discretizations

    others = {name: functions for name, functions in triton_discretizations.DISCRETIZATIONS.items() if name != "zoh"}
    monkeypatch.setattr(triton_discretizations, "DISCRETIZATIONS", others)
    with pytest.warns(UserWarning, match="the triton backend cannot run it: discretization 'zoh' is not one of"):
        assert choose("selective_scan", "auto", GPU, ZOH) == "reference"
    with pytest.raises(RuntimeError, match="'triton' cannot be used: discretization 'zoh' is not one of those compil"):
        choose("selective_scan", "triton", GPU, ZOH)


@pytest.mark.parametrize(("backend", "device"), [("native", CPU), ("triton", GPU)], ids=["native", "triton"])
def test_an_imitation_is_not_run_fused(backend: str, device: torch.device) -> None:
    """The name of a built-in rule, and other coefficients."""
    if reason := BACKENDS[backend].missing():
        pytest.skip(reason)
    imitation = replace(ZOH, coefficients=DISCRETIZATIONS["bil"].coefficients)
    assert BACKENDS[backend].refuses(device, ZOH) is None
    assert BACKENDS[backend].refuses(device, imitation) == "discretization 'zoh' is not the built-in one of that name"


@pytest.mark.parametrize("operator", ["selective_scan", "causal_conv", "gated_mean", "rms_norm"])
def test_one_choice_for_all(operator: str) -> None:
    call = (ZOH,) if operator == "selective_scan" else ()
    assert choose(operator, "reference", CPU, *call) == "reference"
    for name in ("nativ", None, 3, ["native"]):
        with pytest.raises(ValueError, match=r"unknown backend .*; known: auto, native, "):
            choose(operator, name, CPU, *call)  # type: ignore[arg-type]
    if not BACKENDS["native"].missing():
        assert choose(operator, "auto", CPU, *call) == "native"


def test_every_operator_is_exported_without_triton() -> None:
    done = run_python(
        "import sys, torch\n"
        "before = 'triton' in sys.modules\n"
        "import tustin\n"
        "from tustin.ops import causal_conv, gated_mean, rms_norm, selective_scan\n"
        "assert tustin.selective_scan is selective_scan\n"
        "assert before or 'triton' not in sys.modules"
    )
    assert done.returncode == 0, done.stderr


@needs_native
def test_a_library_of_other_sources_is_refused(monkeypatch):
    with pytest.raises(RuntimeError, match="built from other sources; reinstall tustin"):
        library._taking_a_struct("tustin_scan_forward", 8)

    def older(name, *types):
        raise AttributeError(name)

    monkeypatch.setattr(library, "function", older)
    with pytest.raises(RuntimeError, match="built from other sources; reinstall tustin"):
        library._taking_a_struct("tustin_norm_forward", 7)
