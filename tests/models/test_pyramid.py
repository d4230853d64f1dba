"""The feature pyramid: which blocks, which sizes, and that a place on a map stands for its own pixels."""

import math

import pytest
import torch

import tustin
from tustin.models.pyramid import STRIDES, FeaturePyramid, evenly_spaced_blocks

BACKBONES = {
    "patch 16": {"patch_size": 16},
    "patch 16, stride 8": {"patch_size": 16, "stride": 8},
    "patch 4": {"patch_size": 4},
    "patch 2": {"patch_size": 2},
    "patch 32": {"patch_size": 32},
}


def pyramid(depth=4, **sizes):
    torch.manual_seed(0)
    vim = tustin.create_model("vim_nano_patch4_32", img_size=64, embed_dim=16, depth=depth, d_state=2, **sizes)
    return FeaturePyramid(vim).eval()


def test_blocks_of_the_paper():
    assert evenly_spaced_blocks(24) == [5, 11, 17, 23]


@pytest.mark.parametrize("depth", range(1, 30))
def test_blocks_are_evenly_spaced_and_end_with_the_last(depth):
    blocks = evenly_spaced_blocks(depth)
    steps = [after - before for before, after in zip([-1, *blocks], blocks, strict=False)]
    assert blocks[-1] == depth - 1
    assert max(steps) - min(steps) <= 1


@pytest.mark.parametrize("size", [(64, 64), (33, 50), (96, 32), (17, 129), (1, 1)])
@pytest.mark.parametrize("backbone", BACKBONES)
@torch.no_grad()
def test_any_size_gives_four_strides(backbone, size):
    made = pyramid(depth=2, **BACKBONES[backbone])
    stride = made.vim.patch_embed.stride
    maps = made(torch.randn(2, 3, *size))
    cells = [math.ceil(side / stride) for side in size]  # whole patches that cover the image
    for level, wanted in zip(maps, STRIDES, strict=True):
        assert level.shape == (2, 16, *(math.ceil(cell * stride / wanted) for cell in cells))
        assert level.isfinite().all()


@torch.no_grad()
def test_levels_come_from_their_own_blocks():
    made, images = pyramid(depth=4, patch_size=16), torch.randn(1, 3, 64, 64)
    before = made(images)
    for changed in range(4):
        saved = made.vim.layers[changed].mixer.D.clone()
        made.vim.layers[changed].mixer.D += 1
        same = [torch.equal(old, new) for old, new in zip(before, made(images), strict=True)]
        assert same == [level < changed for level in range(4)]
        made.vim.layers[changed].mixer.D.copy_(saved)


@torch.no_grad()
def test_level_of_the_patches_own_stride_is_the_backbones_map():
    made, images = pyramid(depth=4, patch_size=16), torch.randn(1, 3, 64, 96)
    maps = made.vim.forward_intermediates(images, indices=[2, 3], norm=True, intermediates_only=True)
    levels = made(images)
    assert torch.equal(levels[2], maps[0])
    assert torch.equal(levels[3], torch.nn.functional.max_pool2d(maps[1], 2))


@pytest.mark.parametrize("backbone", ["patch 16", "patch 16, stride 8"])
@torch.no_grad()
def test_patches_are_centred_on_the_pixels_of_their_place(backbone):
    made = pyramid(**BACKBONES[backbone])
    embed = made.vim.patch_embed
    rows = torch.arange(64.0)[:, None].expand(64, 64).expand(1, 3, 64, 64)
    embed.proj.weight.fill_(1 / (3 * 16 * 16))  # the mean of a patch
    embed.proj.bias.zero_()
    inner = embed(made._filled_up(rows))[0, 0, 1:-1, 1:-1]  # away from what was filled up
    stride = embed.stride
    centres = torch.arange(64.0).unflatten(0, (-1, stride)).mean(1)[1:-1, None]
    assert torch.allclose(inner, centres.expand_as(inner))


def test_distance_of_patches_must_be_a_power_of_two():
    with pytest.raises(ValueError, match="got 12"):
        pyramid(patch_size=12)
    with pytest.raises(ValueError, match="got 64"):
        pyramid(patch_size=64)


def test_head_of_the_backbone_is_dropped():
    made = pyramid()
    assert made.vim.num_classes == 0
    assert not any(name.startswith("vim.head") for name in made.state_dict())
