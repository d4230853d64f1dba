"""VisionMamba is what its definition says: sizes, names, outputs, gradients, initialisation."""

import json
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.models import slow_vim
from tests.models.slow_vim import small
from tests.systems import FUSED
from tests.tolerances import DERIVATIVES, assert_close
from tustin import create_model
from tustin.models import VisionMamba, resample_pos_embed

PARAMETERS = {
    "vim_tiny_patch16_224": 7_148_008,
    "vim_tiny_patch16_stride8_224": 7_250_344,
    "vim_small_patch16_224": 25_796_584,
    "vim_small_patch16_stride8_224": 26_001_256,
    "vim_base_patch16_224": 97_598_440,
}


def build(seed: int = 0, **kwargs: Any) -> VisionMamba:
    """A small model with no parameter at a special value."""
    torch.manual_seed(seed)
    model = VisionMamba(**small(dt_init_backward="mamba") | kwargs)
    slow_vim.randomise(model)
    return model.eval()


def images(model: VisionMamba, batch: int = 2, size: tuple[int, int] | None = None, seed: int = 1) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(batch, model.config["in_chans"], *(size or model.config["img_size"]), generator=random)


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameter_count(name: str) -> None:
    with torch.device("meta"):
        model = create_model(name)
    assert sum(p.numel() for p in model.parameters()) == PARAMETERS[name]
    assert model.pos_embed.shape[1] == (730 if "stride8" in name else 197)


def test_state_dict_names_and_shapes() -> None:
    """Those of the official tiny model, so that its weights load."""
    expected: dict[str, tuple[int, ...]] = {
        "cls_token": (1, 1, 192),
        "pos_embed": (1, 197, 192),
        "patch_embed.proj.weight": (192, 3, 16, 16),
        "patch_embed.proj.bias": (192,),
        "norm_f.weight": (192,),
        "head.weight": (1000, 192),
        "head.bias": (1000,),
    }
    for i in range(24):
        mixer = f"layers.{i}.mixer"
        expected |= {f"layers.{i}.norm.weight": (192,)}
        expected |= {f"{mixer}.in_proj.weight": (768, 192), f"{mixer}.out_proj.weight": (192, 384)}
        expected |= {f"{mixer}.A_log": (384, 16), f"{mixer}.A_b_log": (384, 16)}
        for b in ("", "_b"):
            expected |= {f"{mixer}.conv1d{b}.weight": (384, 1, 4), f"{mixer}.conv1d{b}.bias": (384,)}
            expected |= {f"{mixer}.x_proj{b}.weight": (44, 384), f"{mixer}.D{b}": (384,)}
            expected |= {f"{mixer}.dt_proj{b}.weight": (384, 12), f"{mixer}.dt_proj{b}.bias": (384,)}
    with torch.device("meta"):
        model = create_model("vim_tiny_patch16_224")
    assert {name: tuple(t.shape) for name, t in model.state_dict().items()} == expected


def judge(model: VisionMamba, x: Tensor) -> None:
    """Logits and every gradient equal the definition's in float64, to 1e-5 of the largest value."""
    target = torch.arange(len(x)) % model.num_classes
    exact = slow_vim.double_parameters(model)
    expected = slow_vim.vim(exact, x.double(), model.config)
    got = model(x)
    assert_close(got, expected, DERIVATIVES, "logits")
    F.cross_entropy(got, target).backward()
    F.cross_entropy(expected, target).backward()
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        assert exact[name].grad is not None, name
        assert_close(p.grad, exact[name].grad, DERIVATIVES, name)


@pytest.mark.parametrize("discretization", FUSED)
def test_equals_the_definition(discretization: str) -> None:
    model = build(discretization=discretization)
    judge(model, images(model))


@pytest.mark.parametrize(
    "sizes",
    [
        {"stride": 2},
        {"stride": 3, "img_size": (14, 11)},
        {"in_chans": 1},
        {"img_size": (8, 20)},
        {"img_size": 4},
        {"patch_size": 1, "img_size": (3, 5), "in_chans": 1, "d_state": 1},
        {"stride": 6},
        {"depth": 1, "embed_dim": 33},
    ],
    ids=str,
)
def test_equals_the_definition_for_other_sizes(sizes: dict[str, Any]) -> None:
    model = build(**sizes)
    judge(model, images(model))


@pytest.mark.parametrize("discretization", ["mamba", "bil", "rk4"])
def test_equals_the_definition_where_vim_starts(discretization: str) -> None:
    """The official initialisation has long backward steps: z reaches −11."""
    torch.manual_seed(0)
    model = VisionMamba(**small(discretization=discretization, d_state=16))
    judge(model, images(model))


def test_the_reference_has_second_derivatives() -> None:
    """Every part of the model runs on it, so none refuses."""
    model = build(depth=1, backend="reference")
    x = images(model).requires_grad_()
    (first,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
    first.square().sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert x.grad.any()


@pytest.mark.parametrize("size", [(16, 12), (9, 25), (4, 4), (12, 13)])
def test_another_size_is_the_model_with_resampled_positions(size: tuple[int, int]) -> None:
    model = build(stride=3)
    other = build(stride=3, img_size=size)
    state = model.state_dict()
    positions = resample_pos_embed(state["pos_embed"], model.patch_embed.grid_size, other.patch_embed.grid_size)
    other.load_state_dict({**state, "pos_embed": positions})
    x = images(model, size=size)
    assert torch.equal(model(x), other(x))


def test_gradient_reaches_the_positions_through_resampling() -> None:
    model = build()
    model(images(model, size=(20, 16))).sum().backward()
    assert model.pos_embed.grad is not None
    assert (model.pos_embed.grad != 0).any(dim=-1).all()


def test_every_parameter_gets_a_gradient() -> None:
    """From the true initialisation, where some start at zero."""
    torch.manual_seed(0)
    model = VisionMamba(**small())
    F.cross_entropy(model(images(model)), torch.tensor([1, 2])).backward()
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        assert p.grad.isfinite().all(), name
        assert p.grad.any(), name


def test_a_sample_does_not_depend_on_its_batch() -> None:
    model = build(depth=4)
    x = images(model, batch=8)
    together = model(x)
    for i in range(8):
        torch.testing.assert_close(model(x[i : i + 1])[0], together[i], rtol=1e-6, atol=1e-6)


def test_empty_batch() -> None:
    model = build()
    assert model(images(model, batch=0)).shape == (0, 5)


@pytest.mark.parametrize("discretization", FUSED)
def test_learns_six_images_by_heart(discretization: str) -> None:
    torch.manual_seed(0)
    model = VisionMamba(**small(discretization=discretization, dt_init_backward="mamba", embed_dim=32, img_size=8))
    x, target = images(model, batch=6), torch.arange(6) % 5
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(40):
        optimizer.zero_grad()
        F.cross_entropy(model(x), target).backward()
        optimizer.step()
    loss = F.cross_entropy(model(x), target)
    assert loss < 0.05, f"{discretization}: {loss:.3f}"


def test_evaluation_is_deterministic_and_training_is_not() -> None:
    model = build(drop_path_rate=0.5, drop_rate=0.5)
    x = images(model, batch=4)
    assert torch.equal(model(x), model(x))
    model.train()
    assert not torch.equal(model(x), model(x))


def test_drop_path_grows_linearly_to_its_rate() -> None:
    model = build(depth=4, drop_path_rate=0.3)
    rates = [getattr(block.drop_path, "drop_prob", 0.0) for block in model.layers]
    assert rates == pytest.approx([0.0, 0.1, 0.2, 0.3])


def test_the_config_builds_the_same_model() -> None:
    model = build(stride=2, img_size=(8, 10), discretization="zoh", drop_path_rate=0.1)
    again = VisionMamba(**json.loads(json.dumps(model.config)))
    again.load_state_dict(model.state_dict())
    assert again.config == model.config
    assert "backend" not in model.config
    x = images(model)
    assert torch.equal(again.eval()(x), model(x))


def test_initialisation_is_that_of_vim() -> None:
    torch.manual_seed(0)
    model = VisionMamba(img_size=64, embed_dim=128, depth=4, num_classes=200)

    def std(p: Tensor) -> float:
        return float(p.detach().std())

    assert std(model.pos_embed) == pytest.approx(0.02, rel=0.1)
    assert std(model.cls_token) == pytest.approx(0.02, rel=0.2)
    assert isinstance(model.head, torch.nn.Linear)
    assert std(model.head.weight) == pytest.approx(0.02, rel=0.05)
    assert not model.head.bias.any()
    assert std(model.patch_embed.proj.weight) == pytest.approx((3 * 16 * 16) ** -0.5, rel=0.05)
    assert model.patch_embed.proj.bias is not None
    assert not model.patch_embed.proj.bias.any()
    for block in model.layers:
        assert torch.equal(block.norm.weight, torch.ones(128))
        assert not block.mixer.dt_proj_b.bias.any()
        assert (block.mixer.dt_proj.bias < -2).all()
        bound = 256**-0.5 / 4**0.5  # PyTorch's own for a linear layer, divided by √depth
        assert 0.98 * bound < block.mixer.out_proj.weight.abs().max() <= bound


@pytest.mark.parametrize(
    ("name", "values"),
    {
        "img_size": [0, -8, 2**17, "8", (8, 0), (8,), 8.0],
        "patch_size": [0, -1, 2.0],
        "stride": [0, -1, 1.5],
        "in_chans": [0, True],
        "num_classes": [-1, 1.5],
        "embed_dim": [0, 10**30],
        "depth": [0, 1001, True],
        "d_state": [0, -4],
        "drop_rate": [-0.1, 1, math.nan, math.inf],
        "drop_path_rate": [-1, 1, math.nan, "0"],
        "discretization": [3, ["zoh"]],
        "dynamic_img_size": [1, "yes"],
    }.items(),
)
def test_arguments_out_of_their_range(name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ValueError, match=f"^{name} must be .*, got "):
            create_model("vim_nano_patch2_8", **{name: value})


def test_a_head_for_less_than_no_classes() -> None:
    with pytest.raises(ValueError, match=r"num_classes must be a whole number from 0 .*, got -1"):
        build().reset_classifier(-1)
