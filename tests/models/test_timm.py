"""What timm's users rely on, for every model in the registry."""

import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F
from timm.data import create_transform, resolve_model_data_config
from timm.optim import param_groups_layer_decay, param_groups_weight_decay
from torch import Tensor

from tests.models import slow_vim
from tests.models.slow_vim import small
from tests.models.test_vim import build, images
from tests.tolerances import DERIVATIVES, assert_close
from tustin import create_model
from tustin.models import VisionMamba
from tustin.models.tokens import split_middle

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
MODELS = timm.list_models("vim_*")
NANO = timm.list_models("vim_nano_*")


@pytest.mark.parametrize(
    "imports", ["import timm, tustin", "import sys, tustin; assert 'timm' not in sys.modules; import timm.layers"]
)
def test_registered_by_importing_tustin(imports: str) -> None:
    """In whichever order; timm, which takes long, is not imported before it is wanted."""
    code = f"{imports}; print(*timm.list_models('vim_*'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=True)
    assert done.stdout.split() == MODELS
    assert {"vim_tiny_patch16_224", "vim_base_patch16_224", "vim_nano_patch4_32"} <= set(MODELS)


@pytest.mark.parametrize("name", MODELS)
def test_each_model(name: str) -> None:
    """Built by name at a depth of 2: images as its data config says in, gradients on every parameter out."""
    torch.manual_seed(0)
    model: Any = timm.create_model(name, depth=2)
    data = resolve_model_data_config(model)
    x = torch.randn(1, *data["input_size"])
    logits = model(x)
    assert logits.shape == (1, model.num_classes) == (1, model.default_cfg["num_classes"])
    F.cross_entropy(logits, torch.tensor([3])).backward()
    assert [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []
    assert model.config["discretization"] == "mamba"
    assert model.get_submodule(model.pretrained_cfg["first_conv"]) is model.patch_embed.proj
    assert model.get_submodule(model.pretrained_cfg["classifier"]) is model.get_classifier()


def test_the_page_shows_the_registry() -> None:
    """The tables of docs/models.md: every variant with its exact sizes, every argument."""
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    expected = []
    for name in MODELS:
        with torch.device("meta"):
            model: Any = timm.create_model(name)
        parameters, config = sum(p.numel() for p in model.parameters()), model.config
        size = " x ".join(map(str, model.pretrained_cfg["input_size"]))
        made_for = f"{size}, {config['num_classes']} classes"
        cells = [
            f"`{name}`",
            f"{parameters:,}",
            model.pos_embed.shape[1],
            config["embed_dim"],
            config["depth"],
            made_for,
        ]
        expected.append(f"| {' | '.join(map(str, cells))} |")
    assert sorted(rows[: len(MODELS)]) == sorted(expected), "\n".join(expected)
    arguments = [row.split("`")[1] for row in rows[len(MODELS) :]]
    assert arguments == list(inspect.signature(VisionMamba).parameters)


def test_data_config_follows_the_arguments() -> None:
    model = timm.create_model("vim_tiny_patch16_224", depth=1, img_size=(96, 64), in_chans=1)
    assert resolve_model_data_config(model)["input_size"] == (1, 96, 64)
    plain = timm.create_model("vim_tiny_patch16_224", depth=1)
    data = resolve_model_data_config(plain)
    assert data["input_size"] == (3, 224, 224)
    assert data["crop_pct"] == 0.875
    assert "Resize(size=256" in str(create_transform(**data))


def test_arguments_reach_the_model() -> None:
    model: Any = timm.create_model("vim_nano_patch4_32", discretization="rk4", num_classes=7, d_state=3, depth=1)
    assert model(torch.randn(1, 3, 32, 32)).shape == (1, 7)
    assert model.layers[0].mixer.A_log.shape[1] == 3
    assert model.layers[0].mixer.discretization == "rk4"
    with pytest.raises(ValueError, match=r"unknown discretization 'zoo'"):
        timm.create_model("vim_nano_patch4_32", discretization="zoo")


def test_no_pretrained_weights_are_pretended() -> None:
    with pytest.raises(RuntimeError, match="No pretrained weights exist"):
        timm.create_model("vim_nano_patch4_32", pretrained=True)


def test_create_model_suggests_a_name() -> None:
    with pytest.raises(
        ValueError, match=r"unknown model .* \(did you mean 'vim_tiny_patch16_224'\?\); known: vim_base"
    ):
        create_model("vim_tiny_patch_224")


@pytest.mark.parametrize("name", NANO)
def test_nano_models_fit_their_images(name: str) -> None:
    model: Any = create_model(name)
    channels = {"vim_nano_patch4_32": 3}.get(name, 1)
    assert model.config["in_chans"] == channels
    assert model(torch.randn(2, *model.pretrained_cfg["input_size"])).shape == (2, 10)


def test_head_reset() -> None:
    model = build()
    x = images(model)
    features = model.forward_features(x)
    before = model(x)
    model.reset_classifier(3)
    assert model.get_classifier() is model.head
    assert model(x).shape == (2, 3)
    assert (model.num_classes, model.config["num_classes"]) == (3, 3)
    model.reset_classifier(0)
    assert torch.equal(model(x), features[:, 4])  # of 9 patches 4 come first
    model.reset_classifier(5, "avg")
    assert model.config["global_pool"] == "avg"
    patches = torch.cat((features[:, :4], features[:, 5:]), dim=1).mean(1)
    torch.testing.assert_close(model.forward_head(features, pre_logits=True), patches)
    model.reset_classifier(5, "")
    assert model(x).shape == (2, 10, 5)
    assert before.shape == (2, 5)
    with pytest.raises(ValueError, match=r"unknown global_pool 'tokens' \(did you mean 'token'\?\)"):
        model.reset_classifier(5, "tokens")


def test_a_new_head_has_the_dtype_of_the_model() -> None:
    model = build().bfloat16()
    model.reset_classifier(4)
    assert model(images(model).bfloat16()).dtype == torch.bfloat16


def test_no_weight_decay() -> None:
    """Neither in the list nor through timm's groups is anything decayed but the matrices."""
    model = build()
    matrices = ("in_proj.weight", "x_proj.weight", "x_proj_b.weight", "dt_proj.weight", "dt_proj_b.weight")
    matrices += ("out_proj.weight", "conv1d.weight", "conv1d_b.weight", "patch_embed.proj.weight", "head.weight")
    decayed = {name for name, _ in model.named_parameters() if name.endswith(matrices)}
    kept = model.no_weight_decay()
    assert kept.isdisjoint(decayed)
    assert kept | decayed == {name for name, _ in model.named_parameters()}
    groups = param_groups_weight_decay(model, 0.05, no_weight_decay_list=model.no_weight_decay())
    names = {id(p): name for name, p in model.named_parameters()}
    assert {names[id(p)] for group in groups if group["weight_decay"] for p in group["params"]} == decayed


def test_layer_decay_groups() -> None:
    model = build(depth=3)
    groups = param_groups_layer_decay(model, layer_decay=0.5)
    names = {id(p): name for name, p in model.named_parameters()}
    scale = {names[id(p)]: group["lr_scale"] for group in groups for p in group["params"]}
    assert len(scale) == len(names)
    assert scale["head.weight"] == 1
    assert scale["cls_token"] == scale["pos_embed"] == scale["patch_embed.proj.weight"] < scale["layers.0.norm.weight"]
    for i in range(2):
        assert scale[f"layers.{i}.mixer.A_log"] * 2 == pytest.approx(scale[f"layers.{i + 1}.mixer.A_log"])


@pytest.mark.parametrize("drop_path_rate", [0.0, 0.4])
def test_checkpointing_gives_the_same_gradients(drop_path_rate: float) -> None:
    model = build(depth=3, drop_path_rate=drop_path_rate).train()
    x = images(model, batch=4)

    def gradients(enable: bool) -> list[Tensor]:
        model.set_grad_checkpointing(enable)
        torch.manual_seed(5)
        return list(torch.autograd.grad(model(x).square().sum(), list(model.parameters())))

    for got, expected in zip(gradients(True), gradients(False), strict=True):
        assert torch.equal(got, expected)


@pytest.mark.parametrize(("img_size", "size"), [(12, (12, 12)), ((8, 20), (8, 20)), (12, (16, 8))])
def test_intermediates_are_the_tokens_without_the_middle_one(
    img_size: int | tuple[int, int], size: tuple[int, int]
) -> None:
    model = build(depth=3, img_size=img_size)
    x = images(model, size=size)
    grid = (size[0] // 4, size[1] // 4)
    middle = grid[0] * grid[1] // 2
    final, maps = model.forward_intermediates(x)
    assert torch.equal(final, model.forward_features(x))
    assert [tuple(m.shape) for m in maps] == [(2, 20, *grid)] * 3
    last = model.forward_intermediates(x, indices=1, norm=True, return_prefix_tokens=True, intermediates_only=True)
    ((patches, token),) = last
    assert torch.equal(token[:, 0], final[:, middle])
    for row in range(grid[0]):
        for column in range(grid[1]):
            n = row * grid[1] + column
            assert torch.equal(patches[:, :, row, column], final[:, n if n < middle else n + 1])


def test_intermediates_against_the_definition() -> None:
    model = build(depth=3)
    x = images(model)
    stages = slow_vim.tokens(slow_vim.double_parameters(model), x.double(), model.config)
    sequences = model.forward_intermediates(x, output_fmt="NLC", intermediates_only=True)
    for got, stage in zip(sequences, stages, strict=False):
        assert_close(got, split_middle(stage)[0], DERIVATIVES)


def test_intermediates_chosen_and_stopped_early() -> None:
    model = build(depth=3)
    x = images(model)
    everything = model.forward_intermediates(x, intermediates_only=True)
    model.layers[2].register_forward_hook(lambda *_: pytest.fail("the last block was run"))
    some = model.forward_intermediates(x, indices=[0, -2], stop_early=True, intermediates_only=True)
    assert torch.equal(some[0], everything[0])
    assert torch.equal(some[1], everything[1])
    with pytest.raises(ValueError, match=r"unknown output_fmt 'NHWC' .*known: NCHW, NLC"):
        model.forward_intermediates(x, output_fmt="NHWC")


def test_intermediates_in_a_dict() -> None:
    model = build(depth=2)
    x = images(model)
    result = model.forward_intermediates(x, output_dict=True, return_prefix_tokens=True)
    assert torch.equal(result["image_features"], model.forward_features(x))
    assert [tuple(t.shape) for t in result["image_intermediates"]] == [(2, 20, 3, 3)] * 2
    assert [tuple(t.shape) for t in result["image_intermediates_prefix"]] == [(2, 1, 20)] * 2
    assert list(model.forward_intermediates(x, output_dict=True, intermediates_only=True)) == ["image_intermediates"]


@pytest.mark.parametrize("name", NANO)
def test_features_only(name: str) -> None:
    torch.manual_seed(0)
    backbone: Any = timm.create_model(name, features_only=True, out_indices=(0, 1))
    torch.manual_seed(0)
    model: Any = timm.create_model(name)
    x = torch.randn(2, *backbone.pretrained_cfg["input_size"])
    maps = backbone(x)
    assert backbone.feature_info.reduction() == [model.config["stride"]] * 2
    assert [tuple(m.shape[:2]) for m in maps] == [(2, width) for width in backbone.feature_info.channels()]
    assert tuple(maps[0].shape[2:]) == model.patch_embed.grid_size
    for got, expected in zip(maps, model.forward_intermediates(x, [0, 1], intermediates_only=True), strict=True):
        assert torch.equal(got, expected)
    sum(m.sum() for m in maps).backward()
    assert [n for n, p in backbone.named_parameters() if p.grad is None] == []  # nothing unused is left behind


@pytest.mark.parametrize(
    ("shape", "sentence"),
    [
        (
            (2, 1, 12, 12),
            r"the model expects images \(batch, 3, height, width\), got a tensor of shape \(2, 1, 12, 12\)",
        ),
        ((3, 12, 12), r"the model expects images \(batch, 3, height, width\), got a tensor of shape \(3, 12, 12\)"),
        ((2, 3, 12, 3), "an image of 12 x 3 is smaller than a patch of 4 x 4"),
    ],
)
def test_wrong_images(shape: tuple[int, ...], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        build()(torch.randn(shape))


def test_wrong_sizes() -> None:
    with pytest.raises(ValueError, match="an image of 8 x 3 is smaller than a patch of 4 x 4"):
        VisionMamba(**small(img_size=(8, 3)))
    with pytest.raises(ValueError, match="made for images of 12 x 12, got 16 x 12; dynamic_img_size=True takes any"):
        build(dynamic_img_size=False)(torch.randn(1, 3, 16, 12))
