"""The scan as an ONNX graph, run by onnxruntime, beside the scan itself: every rule and every form of the arguments."""

import warnings
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tustin.discretize import DISCRETIZATIONS, Discretization, register
from tustin.discretize.compact import recording
from tustin.discretize.phi import phi
from tustin.ops.scan import selective_scan
from tustin.ops.scan.arguments import Options, Tensors

pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")

D, N, L = 6, 4, 9


class Scan(nn.Module):
    """The output and the last state."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, tensors: dict[str, Tensor], more: None = None) -> Any:
        return selective_scan(**tensors, **self.options, return_last_state=True)


def exported(
    module: nn.Module,
    tensors: dict[str, Tensor],
    constant: tuple[str, ...] = ("A", "D", "delta_bias"),
    mix: Tensor | None = None,
) -> Any:
    shapes = {name: {} if name in constant else {0: torch.export.Dim.DYNAMIC} for name in tensors}
    with warnings.catch_warnings(action="ignore"), torch.no_grad():
        program = torch.onnx.export(
            module,
            (tensors, mix),
            dynamic_shapes=(shapes, None if mix is None else {0: torch.export.Dim.DYNAMIC}),
            dynamo=True,
            verbose=False,
            opset_version=18,
        )
    assert program is not None
    return program.model_proto


def run(proto: Any, tensors: dict[str, Tensor]) -> list[Any]:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    return session.run(None, {name: t.numpy() for name, t in zip(names, tensors.values(), strict=True)})


def arguments(batch: int, seed: int = 0, **more: tuple[int, ...]) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(seed)
    shapes = {"u": (batch, D, L), "delta": (batch, D, L), "A": (D, N), "B": (batch, N, L), "C": (batch, N, L), **more}
    tensors = {name: torch.randn(shape, generator=random) for name, shape in shapes.items()}
    tensors["A"] = -3 * tensors["A"].abs()
    tensors["A"][0, 0] = 0.0
    return tensors


def assert_same(proto: Any, module: nn.Module, tensors: dict[str, Tensor]) -> None:
    expected = [t.numpy() for t in module(tensors)]
    for found, wanted in zip(run(proto, tensors), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


class Scans(nn.Module):
    """The outputs of several rules, together because an export takes a while."""

    def __init__(self, rules: tuple[str, ...]) -> None:
        super().__init__()
        self.rules = rules

    def forward(self, tensors: dict[str, Tensor], mix: Tensor) -> list[Tensor]:
        return [
            selective_scan(
                **tensors,
                mix=mix if DISCRETIZATIONS[name].mixes else None,
                discretization=name,
                delta_softplus=True,
                reverse=len(name) % 2 == 0,
            )
            for name in self.rules
        ]


@pytest.mark.parametrize(
    "rules",
    [("mamba", "bil", "hoh", "true_foh", "exptrap"), pytest.param(tuple(DISCRETIZATIONS), marks=pytest.mark.long)],
    ids=["some", "all"],
)
def test_rules(rules: tuple[str, ...]) -> None:
    scans = Scans(rules)
    tensors, mix = arguments(2, delta_bias=(D,)), torch.rand(2, D, L)
    tensors["delta"][0, :, 2] = -200.0  # steps of 0
    proto = exported(scans, tensors, mix=mix)
    assert [node.op_type for node in proto.graph.node].count("Scan") == len(rules)
    assert {opset.domain for opset in proto.opset_import} == {""}
    for batch in (1, 2, 5):
        tensors, mix = {**arguments(batch, delta_bias=(D,)), "A": tensors["A"]}, torch.rand(batch, D, L)
        expected = scans(tensors, mix)
        for name, found, wanted in zip(rules, run(proto, {**tensors, "mix": mix}), expected, strict=True):
            tolerance = 1e-5 * float(wanted.abs().max())
            np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-4, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("rule", ["zoh", "true_hoh"])
def test_every_argument(rule: str) -> None:
    parts = DISCRETIZATIONS[rule].state_parts
    state = (2, D, N) if parts == 1 else (2, D, N, parts)
    tensors = arguments(2, B=(2, 3, N, L), C=(D, N), D=(D,), z=(2, D, L), initial_state=state)
    tensors["delta"] = tensors["delta"].abs()
    if parts > 1:
        tensors["initial_state"][..., 3:] = 0.5  # a step is the same for all states
    scan = Scan(discretization=rule)
    assert_same(exported(scan, tensors, ("A", "C", "D")), scan, tensors)


def test_constant_and_grouped_the_other_way_round_in_float64() -> None:
    tensors = {name: t.double() for name, t in arguments(2, B=(D, N), C=(2, 2, N, L)).items()}
    scan = Scan(discretization="bil", delta_softplus=True)
    proto = exported(scan, tensors, ("A", "B"))
    for found, wanted in zip(run(proto, tensors), scan(tensors), strict=True):
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-12, atol=1e-13)


def test_a_rule_of_the_users_own() -> None:
    """Its formula is all there is: no kernel has it, and no translation was written for it."""

    def coefficients(delta: Tensor, z: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        return 1 / (1 - z + z * z / 2), (delta * phi(2, z) * 2,)

    rule = Discretization(
        name="own_onnx",
        coefficients=coefficients,
        alpha="",
        betas=("",),
        order=1,
        held_order=1,
        exact_equilibrium=False,
        stable=(-float("inf"), 0),
        source="",
    )
    register(rule)
    try:
        with warnings.catch_warnings(action="ignore"):  # the reference is slow
            tensors, scan = arguments(2), Scan(discretization="own_onnx", delta_softplus=True)
            proto = exported(scan, tensors, ("A",))
            assert [node.op_type for node in proto.graph.node].count("Scan") == 1
            assert_same(proto, scan, tensors)
    finally:
        del DISCRETIZATIONS["own_onnx"]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # opcheck looks at it
def test_the_operators_stay_as_they_were() -> None:
    """For tracing with dynamic shapes and for compilers, in the same process after an export."""
    exported(Scan(discretization="bil"), arguments(2), ("A",))
    tensors = Tensors(**{name: t.requires_grad_() for name, t in arguments(2).items()})
    torch.library.opcheck(torch.ops.tustin.selective_scan.default, (*tensors, *Options(True, "bil", False), True))
    tables = import_module("torch._decomp").global_decomposition_table
    assert not [str(operator) for table in tables.values() for operator in table if "tustin" in str(operator)]


@pytest.mark.parametrize(("k", "tolerance"), [(0, 2e-7), (1, 4e-7), (2, 6e-7), (3, 2e-6), (4, 6e-6)])
def test_compact_phi(k: int, tolerance: float) -> None:
    z = torch.cat(
        [torch.zeros(1), -torch.logspace(-44, 1.9, 5000), -torch.linspace(0, 3, 3001), torch.logspace(-44, 1, 99)]
    )
    with recording():
        found = phi(k, z)
    assert found.dtype == torch.float32
    exact = phi(k, z.double())
    assert ((found.double() - exact).abs() <= tolerance * exact.abs() + 1e-37).all()
