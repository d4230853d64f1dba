"""The detector as a whole: its parts, the sizes it takes, and that a checkpoint brings it back."""

import pytest
import torch
from torchvision.models.detection import rpn
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.generalized_rcnn import GeneralizedRCNN
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads
from torchvision.ops import MultiScaleRoIAlign

import tustin
from tustin.models import VisionMamba
from tustin.models.checkpoint import describe
from tustin.models.detector import Detector

from .detectors import images, small_detector, target


@pytest.fixture
def detector():
    return small_detector().eval()


def sensitive(detector):
    """One that finds something in noise."""
    torch.manual_seed(1)
    for stage in detector.roi_heads.stages:
        torch.nn.init.normal_(stage.box_predictor.cls_score.weight, std=2.0)
        torch.nn.init.normal_(stage.box_predictor.bbox_pred.weight, std=0.5)
    return detector


def test_is_made_of_torchvision(detector):
    assert isinstance(detector, GeneralizedRCNN)
    assert isinstance(detector.rpn, rpn.RegionProposalNetwork)
    assert isinstance(detector.rpn.anchor_generator, AnchorGenerator)
    assert isinstance(detector.roi_heads.box_roi_pool, MultiScaleRoIAlign)
    assert isinstance(detector.roi_heads.mask_head, MaskRCNNHeads)
    assert len(detector.rpn.head.conv) == 2


def test_paper_sizes():
    with torch.device("meta"):
        vim = tustin.create_model("vim_tiny_patch16_224", img_size=1024, num_classes=0)
        detector = Detector(vim, range(1, 81))
    assert detector.backbone.strides == [4, 8, 16, 32, 64]
    assert detector.rpn.anchor_generator.sizes == ((32,), (64,), (128,), (256,), (512,))
    assert detector.backbone.out_channels == 256
    assert detector.roi_heads.stages[0].box_head[-2].out_features == 1024
    assert detector.rpn._post_nms_top_n == {"training": 1000, "testing": 1000}
    assert detector.transform.min_size == (1024,)


def test_whole_image_of_1024_pixels_without_windows():
    """One sequence of 64 x 64 patches, with positions resampled from those that the backbone was made for."""
    torch.manual_seed(0)
    vim = VisionMamba(img_size=224, embed_dim=8, depth=1, d_state=2, num_classes=0)
    detector = Detector(vim, [1], channels=8, hidden=8, proposals=5, samples=4)
    lengths = []
    vim.layers[0].register_forward_hook(lambda module, inputs, output: lengths.append(output.shape[1]))
    with torch.no_grad():
        detector.backbone(torch.rand(1, 3, 1024, 1024))
    assert lengths == [64 * 64 + 1]


@pytest.mark.parametrize(
    ("size", "resized"),
    [((50, 90), (64, 115)), ((90, 50), (115, 64)), ((64, 64), (64, 64)), ((10, 100), (13, 128)), ((1, 300), (1, 128))],
)
def test_shorter_side_is_resized_up_to_a_longest(detector, size, resized):
    seen = []
    detector.rpn.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    with torch.no_grad():
        detector([torch.rand(3, *size)])
    assert seen[0].image_sizes == [resized]
    assert [side % 32 for side in seen[0].tensors.shape[-2:]] == [0, 0]


def test_results_are_in_the_image(detector):
    image = torch.rand(3, 37, 71)
    with torch.no_grad():
        found = sensitive(detector)([image])[0]
    assert len(found["boxes"]) > 0
    assert found["boxes"].min() >= 0
    assert found["boxes"][:, 2].max() <= 71
    assert found["boxes"][:, 3].max() <= 37
    assert found["masks"].shape == (len(found["boxes"]), 1, 37, 71)
    assert found["scores"].tolist() == sorted(found["scores"].tolist(), reverse=True)


def test_batch_does_not_change_what_is_found(detector):
    """Not even where images of several sizes would be filled up to one."""
    batch = [torch.rand(3, 64, 64), torch.rand(3, 90, 50), torch.rand(3, 40, 40)]
    with torch.no_grad():
        together = sensitive(detector)(batch)
        alone = [detector([image])[0] for image in batch]
    assert sum(len(one["boxes"]) for one in alone) > 0
    for one, other in zip(together, alone, strict=True):
        for name in one:
            assert torch.equal(one[name], other[name])


def test_a_first_image_that_is_mostly_filled_up_does_not_mislead():
    """Boxes are cut out at the maps' true strides, which torchvision would have guessed from the first image."""
    first, second = small_detector().eval(), small_detector().eval()
    narrow, image = torch.rand(3, 8, 70), torch.rand(3, 64, 64)
    with torch.no_grad():
        sensitive(first)([narrow])
        expected, got = sensitive(second)([image])[0], first([image])[0]
    assert torch.equal(expected["boxes"], got["boxes"])
    assert first.roi_heads.box_roi_pool.scales == [1 / 2, 1 / 4, 1 / 8, 1 / 16]


def test_same_seed_gives_the_same_gradients():
    def gradients():
        detector = small_detector()
        torch.manual_seed(5)
        losses = detector(images(2), [target((10, 10, 40, 30), (5, 5, 20, 20)), target((30, 30, 64, 64))])
        sum(losses.values()).backward()
        return [p.grad for p in detector.parameters()]

    assert all(torch.equal(one, other) for one, other in zip(gradients(), gradients(), strict=True))


def test_boxes_keep_their_precision_in_mixed_precision(detector):
    seen = []
    detector.roi_heads.box_roi_pool.register_forward_hook(lambda module, inputs, output: seen.extend(inputs[1]))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found = sensitive(detector)(images(1))[0]
    assert {boxes.dtype for boxes in seen} == {torch.float32}
    assert not any(torch.equal(boxes, boxes.bfloat16().float()) for boxes in seen)
    assert found["boxes"].dtype == torch.float32


@pytest.mark.parametrize("discretization", ["bil", "zoh"])
def test_checkpoint_brings_it_back(tmp_path, discretization):
    before = sensitive(small_detector(discretization).eval())
    path = tmp_path / "detector.safetensors"
    tustin.save(before, path, class_names=["cat", "dog"])
    after = tustin.load(path)
    assert isinstance(after, Detector)
    assert not after.training
    assert after.config == before.config
    assert describe(path)["task"] == "detection"
    assert describe(path)["discretization"] == discretization
    assert after.pretrained_cfg["label_names"] == ["cat", "dog"]
    with torch.no_grad():
        expected, got = before(images(1))[0], after(images(1))[0]
    assert all(torch.equal(expected[name], got[name]) for name in expected)


def test_checkpoint_of_another_rule_is_refused(tmp_path):
    tustin.save(small_detector("zoh"), tmp_path / "detector.safetensors")
    with pytest.raises(ValueError, match="zoh"):
        tustin.load(tmp_path / "detector.safetensors", discretization="bil")
    model = tustin.load(tmp_path / "detector.safetensors", discretization="bil", allow_other_discretization=True)
    assert model.config["discretization"] == "bil"


def test_no_weight_decay_where_it_would_pull_from_a_meaning(detector):
    free = detector.no_weight_decay()
    names = {name for name, _ in detector.named_parameters()}
    assert free <= names
    assert {"backbone.vim.pos_embed", "backbone.vim.cls_token", "backbone.vim.layers.0.mixer.A_log"} <= free
    assert "backbone.vim.layers.0.mixer.in_proj.weight" not in free


def test_zero_area_is_refused_in_training():
    with pytest.raises(AssertionError, match="positive height and width"):
        small_detector()(images(1), [target((10, 10, 10, 30))])
