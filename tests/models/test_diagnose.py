"""`diagnose` names the tensor that is wrong, and leaves the model as it was."""

import json
from typing import Any

import pytest
import torch

import tustin
from tests.models.test_vim import build, images
from tests.systems import FUSED
from tustin import check_values
from tustin.models import VisionMamba


def poison(model: VisionMamba, name: str, value: float = float("nan")) -> None:
    with torch.no_grad():
        model.get_parameter(name).view(-1)[-1] = value


@pytest.mark.parametrize("discretization", [name for name in FUSED if name != "rk4_raw"])
def test_a_healthy_model(discretization: str) -> None:
    model = build(discretization=discretization)
    report = tustin.diagnose(model, images(model))
    assert report.first_non_finite is None
    assert report.healthy
    assert [(steps.layer, steps.direction) for steps in report.layers] == [
        (f"layers.{i}.mixer", direction) for i in range(len(model.layers)) for direction in ("forward", "backward")
    ]
    assert "every tensor is finite" in str(report)


@pytest.mark.parametrize(
    ("name", "layer", "tensor"),
    [
        ("pos_embed", "model", "pos_embed"),
        ("patch_embed.proj.weight", "patch_embed.proj", "weight"),
        ("layers.1.norm.weight", "layers.1.norm", "weight"),
        ("layers.1.mixer.dt_proj_b.bias", "layers.1.mixer", "dt_proj_b.bias"),
        ("layers.0.mixer.in_proj.weight", "layers.0.mixer", "in_proj.weight"),
        ("norm_f.weight", "norm_f", "weight"),
        ("head.bias", "head", "bias"),
    ],
)
@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_a_parameter_that_is_not_finite_is_named(name: str, layer: str, tensor: str, value: float) -> None:
    model = build()
    poison(model, name, value)
    found = tustin.diagnose(model, images(model)).first_non_finite
    assert found is not None
    assert (found.layer, found.tensor, found.count) == (layer, tensor, 1)
    assert found.first_value == str(value)
    assert found.first_index == tuple(side - 1 for side in model.get_parameter(name).shape)


def test_the_first_of_several_is_named() -> None:
    model = build(depth=3)
    poison(model, "layers.2.mixer.D")
    poison(model, "layers.1.mixer.x_proj.weight")
    found = tustin.diagnose(model, images(model)).first_non_finite
    assert found is not None
    assert (found.layer, found.tensor) == ("layers.1.mixer", "x_proj.weight")
    x = images(model)
    x[1, 0, 2, 3] = float("inf")
    found = tustin.diagnose(model, x).first_non_finite
    assert str(found) == f"input: batch has 1 non-finite of {x.numel()} values, the first is inf at (1, 0, 2, 3)"


def test_an_activation_that_overflows_is_named() -> None:
    model = build()
    with torch.no_grad():
        model.layers[1].mixer.x_proj_b.weight.fill_(1e38)  # every parameter is finite
    found = tustin.diagnose(model, images(model)).first_non_finite
    assert found is not None
    assert (found.layer, found.tensor) == ("layers.1.mixer.x_proj_b", "output")
    with torch.no_grad():
        model.layers[0].mixer.D.fill_(3e38)
    found = tustin.diagnose(model, 10 * images(model)).first_non_finite
    assert found is not None
    assert (found.layer, found.tensor) == ("layers.0.mixer", "y (forward)")


def test_rk4_without_its_limit_is_unstable_and_says_where() -> None:
    torch.manual_seed(0)
    model: Any = tustin.create_model("vim_nano_patch1_8", depth=2, discretization="rk4_raw")
    with check_values():  # stops a scan elsewhere, not here
        report = tustin.diagnose(model, images(model))
    forward, backward = report.layers[:2]
    assert forward.unstable == 0
    assert forward.z_range[0] > -2.785
    assert 0.7 < backward.unstable < 0.9
    assert backward.z_range[0] < -11
    assert not report.healthy
    assert report.first_non_finite.layer == "layers.0.mixer"
    assert report.first_non_finite.tensor == "y (backward)"
    facts = json.loads(json.dumps(report.as_facts(), allow_nan=False))
    assert facts["first_non_finite"]["layer"] == "layers.0.mixer"
    assert facts["layers"][1]["unstable"] == backward.unstable
    assert "rk4_raw is stable for z = Δ·A from -2.785 to 0" in str(report)


def test_z_and_the_share_by_an_independent_count() -> None:
    """With constant steps z is known: Δ = 1 and A = −1 … −4, so rk4_raw is unstable for −3 and −4."""
    model = build(discretization="rk4_raw", depth=1, d_state=4)
    with torch.no_grad():
        for suffix, log in (("", "A_log"), ("_b", "A_b_log")):
            model.layers[0].mixer.get_parameter(f"dt_proj{suffix}.weight").zero_()
            model.layers[0].mixer.get_parameter(f"dt_proj{suffix}.bias").fill_(0.5413248546)  # softplus of it is 1
            model.layers[0].mixer.get_parameter(log).copy_(torch.arange(1.0, 5).log().expand(2 * model.embed_dim, -1))
    for steps in tustin.diagnose(model, images(model)).layers:
        assert steps.unstable == 0.5
        assert steps.z_range == pytest.approx((-4, -1), rel=1e-6)


def test_nothing_finite_at_all() -> None:
    model = build(depth=1)
    with torch.no_grad():
        model.layers[0].mixer.A_log.fill_(float("nan"))
    steps = tustin.diagnose(model, images(model)).layers[0]
    assert steps.z_range is None
    assert steps.unstable == 1
    assert "no z is finite" in str(tustin.diagnose(model, images(model)))


def test_the_model_is_left_as_it_was() -> None:
    model = build(drop_path_rate=0.5).train()
    model.head_drop.eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    tustin.diagnose(torch.nn.DataParallel(model), images(model))
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert all(p.grad is None for p in model.parameters())


def test_a_failure_in_between_leaves_no_hooks() -> None:
    model = build()
    with pytest.raises(ValueError, match="expects images"):
        tustin.diagnose(model, torch.randn(3))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
