"""Stage by stage: what counts as an object, what the next stage gets, and how scores and losses come about."""

import pytest
import torch
from torchvision.models.detection._utils import BoxCoder

from tustin.models.cascade import STAGES

from .detectors import features, images, small_detector, target

IOUS = [iou for iou, _ in STAGES]


@pytest.fixture
def detector():
    return small_detector()


class Fixed(torch.nn.Module):
    """Says the same of every box, whatever it shows, and notes how many it was asked about."""

    def __init__(self, logits, changes):
        super().__init__()
        self.logits, self.changes = torch.tensor(logits), torch.tensor(changes)

    def forward(self, pooled):
        return self.logits.expand(len(pooled), -1), self.changes.expand(len(pooled), -1)


def fix(detector, changes, logits=((0.0, 3.0, 0.0),) * 3):
    """Every stage decides by `Fixed`; returns the list into which the boxes that are cut out go."""
    cascade, seen = detector.roi_heads, []
    for stage, change, logit in zip(cascade.stages, changes, logits, strict=True):
        stage.box_head, stage.box_predictor = torch.nn.Identity(), Fixed(logit, change)
    cascade.box_roi_pool.register_forward_hook(lambda module, inputs, output: seen.append(inputs[1]))
    return seen


def test_stages_are_those_of_the_paper(detector):
    assert [stage.proposal_matcher.high_threshold for stage in detector.roi_heads.stages] == [0.5, 0.6, 0.7]
    weights = [stage.box_coder.weights for stage in detector.roi_heads.stages]
    assert weights == [(10, 10, 5, 5), (20, 20, 10, 10), (30, 30, 15, 15)]


@pytest.mark.parametrize("overlap", [0.49, 0.55, 0.65, 0.75])
def test_every_stage_matches_at_its_own_iou(detector, overlap):
    objects = [target((0, 0, 20, 10), (40, 40, 60, 60), label=2)]
    box = torch.tensor([[0.0, 0.0, 20 * overlap, 10.0]])  # inside the first object, so that the share is the IoU
    for iou, stage in zip(IOUS, detector.roi_heads.stages, strict=True):
        matched, labels = stage.match([box], objects)
        assert labels[0].tolist() == [2 if overlap >= iou else 0]
        assert matched[0].tolist() == [0]


def test_refined_boxes_feed_the_next_stage(detector):
    changes = ([2.0, -1.0, 1.0, 0.5], [1.0, 3.0, -1.0, 0.0], [0.0, 0.0, 0.0, 0.0])
    seen = fix(detector.eval(), changes)
    box = torch.tensor([[20.0, 20.0, 30.0, 36.0]])
    detector.roi_heads(features(detector), [box], [(64, 64)])
    for (_, weights), change in zip(STAGES[:2], changes, strict=False):
        torch.testing.assert_close(seen.pop(0)[0], box)
        box = BoxCoder(weights).decode(torch.tensor([change]), [box])[:, 0]
    torch.testing.assert_close(seen.pop(0)[0], box)


def test_a_change_means_less_from_stage_to_stage(detector):
    box, change = torch.tensor([[20.0, 20.0, 40.0, 40.0]]), torch.tensor([[3.0, 0, 0, 0]])
    moved = [(stage.refine(change, [box], [(64, 64)])[0] - box).tolist() for stage in detector.roi_heads.stages]
    torch.testing.assert_close(torch.tensor(moved)[:, 0, 0], torch.tensor([6.0, 3.0, 2.0]))


def test_boxes_stay_inside_the_image(detector):
    seen = fix(detector.eval(), ([-50.0, 0.0, 5.0, 0.0], [0.0, 50.0, 0.0, 5.0], [0.0] * 4))
    border = torch.tensor([[0.0, 10.0, 20.0, 30.0], [44.0, 44.0, 64.0, 48.0]])
    (found,), _ = detector.roi_heads(features(detector), [border], [(48, 64)])
    for (boxes,) in seen[1:]:
        assert boxes.min() >= 0
        assert boxes[:, 2].max() <= 64
        assert boxes[:, 3].max() <= 48
    assert len(found["boxes"]) == 0  # pushed out, they have no area left


def test_regression_is_one_for_all_classes(detector):
    """Where two classes are likely, the same box is found for both."""
    fix(detector.eval(), ([1.0, 1.0, 0.0, 0.0],) * 3, logits=((0.0, 3.0, 3.0),) * 3)
    (found,), _ = detector.roi_heads(features(detector), [torch.tensor([[20.0, 20.0, 40.0, 40.0]])], [(64, 64)])
    assert sorted(found["labels"].tolist()) == [1, 2]
    torch.testing.assert_close(found["boxes"][0], found["boxes"][1])
    assert {stage.box_predictor(torch.zeros(1, 8, 7, 7))[1].shape for stage in detector.roi_heads.stages} == {(1, 4)}
    assert {stage.box_predictor.bbox_pred.out_features for stage in small_detector().roi_heads.stages} == {4}


def test_scores_are_averaged_over_the_stages(detector):
    logits = ((0.0, 3.0, 1.0), (1.0, 0.5, 0.5), (0.0, 0.0, 4.0))
    fix(detector.eval(), ([0.0] * 4,) * 3, logits)
    (found,), _ = detector.roi_heads(features(detector), [torch.tensor([[20.0, 20.0, 40.0, 40.0]])], [(64, 64)])
    mean = torch.tensor(logits).softmax(-1).mean(0)
    scores = dict(zip(found["labels"].tolist(), found["scores"].tolist(), strict=True))
    assert scores == pytest.approx({1: mean[1].item(), 2: mean[2].item()})


def test_last_stage_decides_the_box(detector):
    changes = ([1.0, 0, 0, 0], [1.0, 0, 0, 0], [3.0, 0, 0, 0])
    fix(detector.eval(), changes)
    (found,), _ = detector.roi_heads(features(detector), [torch.tensor([[20.0, 20.0, 40.0, 40.0]])], [(64, 64)])
    moved = 20 * (1 / 10 + 1 / 20 + 3 / 30)
    torch.testing.assert_close(found["boxes"][0], torch.tensor([20 + moved, 20, 40 + moved, 40]))


def test_losses_of_a_stage_by_hand(detector):
    stage = detector.roi_heads.stages[0]
    boxes = [torch.tensor([[10.0, 10.0, 20.0, 20.0], [40.0, 40.0, 50.0, 50.0]])]
    objects = [target((11, 10, 21, 20))]
    logits, changes = torch.tensor([[0.0, 1.0, 0.0], [2.0, 0.0, 0.0]]), torch.zeros(2, 4)
    classes, box = stage.losses(logits, changes, boxes, objects, *stage.match(boxes, objects))
    expected = -(logits.log_softmax(-1)[0, 1] + logits.log_softmax(-1)[1, 0]) / 2
    torch.testing.assert_close(classes, expected)
    torch.testing.assert_close(box, torch.tensor((1.0 - 1 / 18) / 2))  # a tenth of the width, times ten: smooth L1


def losses_of(detector, objects, proposals=None):
    """With `proposals` instead of those of the proposal network."""
    if proposals is not None:
        detector.rpn.register_forward_hook(lambda module, inputs, output: (proposals, output[1]))
    return detector(images(len(objects)), objects)


CASES = {
    "objects": [target((10, 10, 40, 30), (0, 0, 64, 64)), target((30, 30, 64, 64), label=2)],
    "an object at the border": [target((0, 0, 12, 64)), target((52, 50, 64, 64))],
    "an image without objects": [target((10, 10, 40, 30)), target()],
    "no objects at all": [target(), target()],
}


@pytest.mark.parametrize("proposed", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_losses_are_finite_and_reach_every_parameter(detector, case, proposed):
    losses = losses_of(detector, CASES[case], None if proposed else [torch.zeros(0, 4)] * 2)
    sum(losses.values()).backward()
    assert all(loss.isfinite() for loss in losses.values())
    without = [name for name, p in detector.named_parameters() if p.grad is None]
    assert not without  # or distributed training would wait for it
    if case == "objects":
        zero = [name for name, p in detector.named_parameters() if not p.grad.any()]
        assert not zero


def test_nothing_proposed_and_nothing_there_costs_nothing(detector):
    losses = losses_of(detector, CASES["no objects at all"], [torch.zeros(0, 4)] * 2)
    of_stages = [loss for name, loss in losses.items() if name[-1] in "123"]
    assert len(of_stages) == 6
    assert not any(of_stages)


def test_nothing_proposed_means_nothing_found(detector):
    found, _ = detector.eval().roi_heads(features(detector, 2), [torch.zeros(0, 4)] * 2, [(64, 64)] * 2)
    assert [{name: tuple(value.shape) for name, value in one.items()} for one in found] == [
        {"boxes": (0, 4), "scores": (0,), "labels": (0,), "masks": (0, 1, 28, 28)}
    ] * 2


def test_gradients_do_not_flow_through_refined_boxes(detector):
    boxes = [torch.tensor([[10.0, 10.0, 20.0, 20.0]])]
    changes = torch.ones(1, 4, requires_grad=True)
    assert not detector.roi_heads.stages[0].refine(changes, boxes, [(64, 64)])[0].requires_grad


def test_stages_together_weigh_on_the_features_as_one(detector):
    """Stages that do the same, on the same boxes: their gradient is that of one of them alone."""
    cascade, maps = detector.roi_heads, features(detector)
    state = cascade.stages[0].state_dict()
    for stage in cascade.stages:
        stage.load_state_dict(state)
        torch.nn.init.zeros_(stage.box_predictor.bbox_pred.weight)

    def gradient(stages):
        cascade.stages = torch.nn.ModuleList(stages)
        finest = maps["2"].clone().requires_grad_()
        torch.manual_seed(0)
        losses = cascade({**maps, "2": finest}, [torch.zeros(0, 4)], [(64, 64)], [target((10, 10, 24, 24))])[1]
        sum(loss for name, loss in losses.items() if "class" in name).backward()
        return finest.grad

    all_three = list(cascade.stages)
    torch.testing.assert_close(gradient(all_three), gradient(all_three[:1]))


def test_three_heads_are_built_alike_and_apart(detector):
    heads = [stage.box_head for stage in detector.roi_heads.stages]
    for head in heads:
        kinds = [type(module).__name__ for module in head.modules()]
        assert kinds.count("Conv2d") == 4
        assert kinds.count("LayerNorm2d") == 4
        assert kinds.count("Linear") == 1
    assert not torch.equal(next(heads[0].parameters()), next(heads[1].parameters()))
