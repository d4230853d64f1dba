"""The segmenter: shapes, gradients, sliding windows, and that it comes back from its file."""

import sys

import pytest
import torch
import torch.nn.functional as F

import tustin
from tustin.models.segmenter import Segmenter, _largest
from tustin.support.masks import starts

CLASSES = 5


def segmenter(num_classes=CLASSES, **arguments):
    torch.manual_seed(0)
    settings = {"embed_dim": 16, "depth": 4, "d_state": 2, "patch_size": 8, "discretization": "zoh"} | arguments
    return Segmenter(tustin.create_model("vim_nano_patch4_32", **settings), num_classes, channels=8).eval()


@pytest.mark.parametrize("size", [(32, 32), (33, 50), (17, 129), (40, 8)])
@torch.no_grad()
def test_logits_for_every_pixel_of_any_size(size):
    model = segmenter()
    assert model(torch.randn(2, 3, *size)).shape == (2, CLASSES, *size)
    main, auxiliary = model.train()(torch.randn(2, 3, *size))
    assert main.shape == auxiliary.shape == (2, CLASSES, *size)


def test_every_parameter_learns():
    model = segmenter().train()
    main, auxiliary = model(torch.randn(2, 3, 32, 48))
    (main.square().mean() + auxiliary.square().mean()).backward()
    without = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert without == []


def test_heads_pool_as_upernet_does():
    model = segmenter()
    assert [block.layers[0].output_size for block in model.head.psp_modules.blocks] == [1, 2, 3, 6]
    assert model.auxiliary_head.in_index == 2


def test_one_image_is_not_a_batch_to_train_on():
    with pytest.raises(ValueError, match=r"two images per forward pass.*optim\.batch_size"):
        segmenter().train()(torch.randn(1, 3, 32, 32))


def test_no_weight_decay_where_the_backbone_has_none():
    model = segmenter()
    named, spared = dict(model.named_parameters()), model.no_weight_decay()
    assert spared <= named.keys()
    assert "backbone.vim.layers.0.mixer.A_log" in spared
    assert all(name in spared for name in named if name.endswith("bias"))


@pytest.mark.parametrize("window", [48, 64])  # exactly the image, and larger
@torch.no_grad()
def test_one_window_that_covers_the_image_is_the_whole_image(window):
    model, image = segmenter(), torch.randn(3, 48, 40)
    whole = model(image[None])[0]
    assert torch.equal(model._slide(image, window, 20), whole)
    assert torch.equal(model.segment(image, (48, 40), window, 20), model.segment(image, (48, 40)))
    assert torch.equal(model.segment(image, (48, 40)), whole.argmax(0))


@pytest.mark.parametrize("size", [(32, 32), (50, 33), (31, 90), (65, 64)])
@torch.no_grad()
def test_windows_are_averaged_where_they_overlap(size):
    model, image, side, stride = segmenter(), torch.randn(3, *size), 32, 21
    total, seen = torch.zeros(CLASSES, *size), torch.zeros(size)
    height, width = (min(side, length) for length in size)
    for top in sorted({min(i * stride, size[0] - height) for i in range(9)}):
        for left in sorted({min(i * stride, size[1] - width) for i in range(9)}):
            total[:, top : top + height, left : left + width] += model(
                image[None, :, top : top + height, left : left + width]
            )[0]
            seen[top : top + height, left : left + width] += 1
    assert seen.min() >= 1
    torch.testing.assert_close(model._slide(image, side, stride), total / seen)


def test_windows_of_the_paper_cover_an_image():
    assert starts(512, 512, 341) == [0]
    assert starts(683, 512, 341) == [0, 171]
    assert starts(2048, 512, 341) == [0, 341, 682, 1023, 1364, 1536]
    assert starts(100, 512, 341) == [0]


@torch.no_grad()
def test_largest_logit_at_another_size():
    logits = torch.randn(37, 12, 9)  # more classes than are resampled at once
    resampled = F.interpolate(logits[None], (50, 31), mode="bilinear")[0]
    assert torch.equal(_largest(logits, (50, 31)), resampled.argmax(0))


@torch.no_grad()
def test_comes_back_from_its_file(tmp_path):
    model, images = segmenter(drop_path_rate=0.1), torch.randn(2, 3, 40, 24)
    model.train()(images)  # so that there are statistics to keep
    names = [f"sort {i}" for i in range(CLASSES)]
    tustin.save(model.eval(), tmp_path / "a.safetensors", class_names=names, metadata={"miou": 0.5})
    again = tustin.load(tmp_path / "a.safetensors")
    assert isinstance(again, Segmenter)
    assert again.config == model.config
    assert again.pretrained_cfg["label_names"] == names
    assert torch.equal(again(images), model(images))
    tustin.save(again, tmp_path / "b.safetensors", metadata={"miou": 0.5})
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def test_does_not_run_with_another_rule_unasked(tmp_path):
    tustin.save(segmenter(), tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match=r"trained with discretization 'zoh'.*'bil'"):
        tustin.load(tmp_path / "a.safetensors", discretization="bil")
    other = tustin.load(tmp_path / "a.safetensors", discretization="bil", allow_other_discretization=True)
    assert other.vim.layers[0].mixer.discretization == "bil"
    assert other.config["discretization"] == "bil"


def test_needs_transformers(monkeypatch):
    for name in ("transformers", "transformers.models.upernet.modeling_upernet"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(RuntimeError, match=r"pip install 'tustin\[segmentation\]'"):
        segmenter()
