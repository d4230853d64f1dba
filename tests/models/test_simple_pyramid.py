"""Five maps from one: their sizes, their precision, and which backbones they need."""

import pytest
import torch

from tustin.models import VisionMamba
from tustin.models.simple_pyramid import SimplePyramid


def pyramid(**changes):
    torch.manual_seed(0)
    arguments = {"img_size": 64, "patch_size": 16, "embed_dim": 16, "depth": 2, "d_state": 4, **changes}
    return SimplePyramid(VisionMamba(**arguments), out_channels=8)


@pytest.mark.parametrize(("height", "width"), [(64, 64), (128, 64), (64, 192)])
def test_strides(height, width):
    maps = pyramid()(torch.rand(2, 3, height, width))
    assert list(maps) == ["4", "8", "16", "32", "64"]
    for stride, level in maps.items():
        assert level.shape == (2, 8, height // int(stride), width // int(stride))


def test_reads_the_normalised_last_map():
    module = pyramid()
    images = torch.rand(1, 3, 64, 64)
    tokens = module.vim.forward_features(images)
    patches = torch.cat((tokens[:, :8], tokens[:, 9:]), dim=1)  # of 16 patches, the class token is in the middle
    last = patches.transpose(1, 2).reshape(1, 16, 4, 4)
    torch.testing.assert_close(module(images)["16"], module.levels[2](last))


def test_every_parameter_has_a_gradient():
    module = pyramid()
    sum(level.square().sum() for level in module(torch.rand(1, 3, 64, 64)).values()).backward()
    assert not [name for name, p in module.named_parameters() if p.grad is None or not p.grad.any()]


def test_head_is_dropped():
    assert not [name for name, _ in pyramid(num_classes=10).named_parameters() if "head" in name]


def test_maps_are_float32_in_mixed_precision():
    with torch.autocast("cpu", torch.bfloat16):
        assert {level.dtype for level in pyramid()(torch.rand(1, 3, 64, 64)).values()} == {torch.float32}


@pytest.mark.parametrize("changes", [{"stride": 8}, {"patch_size": 2}])
def test_patches_must_lie_side_by_side(changes):
    with pytest.raises(ValueError, match="do not overlap"):
        pyramid(**changes)
