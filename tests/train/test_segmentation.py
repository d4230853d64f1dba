"""Segmentation: the metrics by hand and by torchmetrics, and runs that learn, stop, continue and start from weights."""

import dataclasses
import json
import os
import signal
import subprocess
import sys

import pytest
import torch

import tustin
from tests.data.masked_shapes import CLASSES, write_masked_shapes
from tests.systems import FUSED
from tustin.data.mask_transforms import ForEvaluation
from tustin.data.masks import UNLABELLED, masked_folder
from tustin.support.signals import Interrupted
from tustin.train import Display, Diverged, train
from tustin.train.display import WithTensorBoard
from tustin.train.evaluation import evaluate_checkpoint
from tustin.train.tasks.segmentation import Segmentation, SegmentationMeter

from .small import small, weights
from .small_segmentation import small_segmentation
from .test_resume import Signal


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    """Eight images to learn, the same ones to be asked about."""
    return write_masked_shapes(tmp_path_factory.mktemp("shapes"), train=8, val=8)


@pytest.fixture(scope="module")
def finished(shapes, tmp_path_factory):
    """A complete run: its summary and its folder."""
    out = tmp_path_factory.mktemp("finished")
    return train(small_segmentation(shapes, out)), out


# --- metrics ----------------------------------------------------------------------------------------------------------


def measured(predicted, truth, classes=3, parts=1):
    """The result of as many processes as `parts`."""
    names = [f"sort {i}" for i in range(classes)]
    meters = [SegmentationMeter(names) for _ in range(parts)]
    for i, (one, other) in enumerate(zip(predicted, truth, strict=True)):
        meters[i % parts].update([one], {"masks": [other]})
    return meters[0].result(lambda mine: [meter.pixels for meter in meters])


def test_metrics_by_hand():
    truth = torch.tensor([[0, 0, 0, 1], [1, 1, UNLABELLED, UNLABELLED]])
    predicted = torch.tensor([[0, 0, 1, 1], [1, 0, 2, 0]])
    result = measured([predicted], [truth])
    assert result["class_iou"] == {
        "sort 0": pytest.approx(100 * 2 / 4),
        "sort 1": pytest.approx(100 * 2 / 4),
        "sort 2": None,
    }
    assert result["miou"] == pytest.approx(50)
    assert result["pixel_accuracy"] == pytest.approx(100 * 4 / 6)


def test_class_that_is_only_predicted_counts_as_nothing_found():
    result = measured([torch.tensor([[0, 2]])], [torch.tensor([[0, 0]])])
    assert result["class_iou"] == {"sort 0": pytest.approx(50), "sort 1": None, "sort 2": 0.0}
    assert result["miou"] == pytest.approx(25)


@pytest.mark.parametrize("parts", [1, 3])
def test_metrics_agree_with_torchmetrics(parts):
    from torchmetrics.classification import MulticlassJaccardIndex

    random = torch.Generator().manual_seed(0)
    truth = [torch.randint(-1, 5, size, generator=random) for size in [(7, 9), (20, 3), (1, 1), (15, 16)]]
    predicted = [torch.randint(0, 5, mask.shape, generator=random) for mask in truth]
    result = measured(predicted, truth, classes=6, parts=parts)  # the sixth is nowhere
    judge = MulticlassJaccardIndex(num_classes=6, ignore_index=UNLABELLED)
    for one, other in zip(predicted, truth, strict=True):
        judge.update(one, other)
    assert result["miou"] == pytest.approx(100 * judge.compute().item(), rel=1e-6)


def test_no_labelled_pixel():
    with pytest.raises(ValueError, match=r"no pixel .* is labelled"):
        measured([torch.zeros(2, 2, dtype=torch.long)], [torch.full((2, 2), UNLABELLED)])


# --- the loss ---------------------------------------------------------------------------------------------------------


def test_loss_is_the_mean_over_labelled_pixels_of_both_heads(shapes, tmp_path):
    task = Segmentation(small_segmentation(shapes, tmp_path))
    logits, auxiliary = torch.randn(2, 2, 3, 4, 4)
    masks = torch.randint(-1, 3, (2, 4, 4))
    expected = [torch.nn.functional.cross_entropy(one, masks, ignore_index=UNLABELLED) for one in (logits, auxiliary)]
    loss = sum(task.losses(lambda images: (logits, auxiliary), {"images": None, "masks": masks}).values())
    torch.testing.assert_close(loss, expected[0] + 0.4 * expected[1])


def test_batch_without_a_label_has_no_loss(shapes, tmp_path):
    task = Segmentation(small_segmentation(shapes, tmp_path))
    logits = torch.randn(2, 2, 3, 4, 4)
    losses = task.losses(lambda images: tuple(logits), {"images": None, "masks": torch.full((2, 4, 4), UNLABELLED)})
    assert list(losses.values()) == [0, 0]


# --- runs -------------------------------------------------------------------------------------------------------------


def overfits(shapes, out, discretization):
    settings = {"updates": 80, "run__eval_updates": 80, "model__discretization": discretization}
    summary = train(small_segmentation(shapes, out, **settings))
    print(f"{discretization}: mean IoU {summary['best']['miou']:.2f} %")
    assert summary["best"]["miou"] > 90
    assert set(summary["best"]["class_iou"]) == set(CLASSES)


def test_learns_eight_images(shapes, tmp_path):
    overfits(shapes, tmp_path, "bil")


@pytest.mark.long
@pytest.mark.parametrize("discretization", [name for name in FUSED if name != "rk4_raw"])
def test_learns_eight_images_with_every_rule(shapes, tmp_path, discretization):
    overfits(shapes, tmp_path, discretization)


def test_rule_that_overflows_is_diagnosed(shapes, tmp_path):
    message = r"is nan at update .*first in layers\.\d.*steps leave the stability interval of rk4_raw"
    args = {"embed_dim": 32, "depth": 2, "d_state": 16}  # z from −11
    with pytest.raises(Diverged, match=message):
        train(small_segmentation(shapes, tmp_path, model__discretization="rk4_raw", model__args=args))


def test_summary_holds_the_metrics(finished):
    summary, out = finished
    assert summary["metric"] == "miou"
    assert {"miou", "pixel_accuracy", "class_iou", "train_loss", "updates"} <= set(summary["best"])
    assert json.loads((out / "metrics.jsonl").read_text())["class_iou"] == summary["best"]["class_iou"]


@pytest.mark.parametrize("at", [2, 4])  # in the middle, and before the evaluation
def test_stopped_run_ends_with_the_same_bits(shapes, finished, tmp_path, at):
    augmented = {"augment__flip": 0.5, "segmentation__photometric": True, "segmentation__max_scale": 2.0}
    settings = {**augmented, "updates": 6, "run__eval_updates": 4, "model__drop_path_rate": 0.2, "optim__ema": 0.9}
    train(small_segmentation(shapes, tmp_path / "whole", **settings))
    config = small_segmentation(shapes, tmp_path / "parts", **settings)
    with pytest.raises(Interrupted, match=f"after update {at} of 6"):
        train(config, display=Signal(signal.SIGTERM, at))
    train(config)
    for name in ("last", "best", "ema"):
        assert weights(tmp_path / "parts", name) == weights(tmp_path / "whole", name)


def test_same_seed_same_bits(shapes, finished, tmp_path):
    train(small_segmentation(shapes, tmp_path))
    assert weights(tmp_path) == weights(finished[1])


@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="needs gloo")
def test_two_processes_evaluate_the_model_that_is_saved(shapes, tmp_path):
    """Each has statistics of its own share of the batches; they must agree before they share the evaluation."""
    recipe = tmp_path / "small.yaml"
    recipe.write_text(json.dumps(dataclasses.asdict(small_segmentation(shapes, tmp_path / "out"))))
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "tustin", "train"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *launch, str(recipe)], capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["processes"] == 2
    told = evaluate_checkpoint(tmp_path / "out" / "best.safetensors")["metrics"]
    assert told["miou"] == pytest.approx(summary["best"]["miou"], rel=1e-12)


def test_tensorboard_gets_numbers_only(shapes, finished):
    written = []
    display = WithTensorBoard.__new__(WithTensorBoard)
    display.display = Display()
    display.writer = type("Writer", (), {"add_scalar": lambda self, name, value, step: written.append(name)})()
    display.epoch(finished[0]["best"], "update 4/4")
    assert "miou" in written
    assert "class_iou" not in written


# --- checkpoints ------------------------------------------------------------------------------------------------------


def test_checkpoint_says_what_the_run_said(finished):
    summary, out = finished
    told = evaluate_checkpoint(out / "best.safetensors")
    assert told["metrics"]["miou"] == pytest.approx(summary["best"]["miou"], rel=1e-12)
    assert (told["samples"], told["skipped"]) == (8, 0)


def test_batch_size_does_not_change_the_result(finished, tmp_path):
    pictures = write_masked_shapes(tmp_path / "odd", train=1, val=3, size=(37, 29), seed=3)
    for kind in ("images", "annotations"):  # sizes of their own
        (pictures / kind / "validation" / "0.png").unlink()
    more = write_masked_shapes(tmp_path / "more", train=1, val=1, size=(70, 33))
    for kind in ("images", "annotations"):
        (more / kind / "validation" / "0.png").rename(pictures / kind / "validation" / "0.png")
    results = [
        evaluate_checkpoint(finished[1] / "best.safetensors", data_path=str(pictures), batch_size=size)["metrics"]
        for size in (1, 2, 3)
    ]
    assert results[0] == results[1] == results[2]


def test_masks_are_compared_at_their_own_size(finished, tmp_path):
    pictures = write_masked_shapes(tmp_path / "large", train=1, val=2, size=(64, 96))
    model = tustin.load(finished[1] / "best.safetensors")
    task_settings = {"segmentation.short_side": 32, "segmentation.long_side": 48}
    told = evaluate_checkpoint(finished[1] / "best.safetensors", data_path=str(pictures), settings=task_settings)
    images = masked_folder(pictures, training=False)
    about = model.pretrained_cfg
    ready = images.prepared(ForEvaluation(about["mean"], about["std"], 48, 32), 3)
    batch = ready.__getitems__([(0, 0), (1, 0)])
    assert [tuple(image.shape[1:]) for image in batch["images"]] == [(48, 32)] * 2
    meter = SegmentationMeter(images.classes)
    for image, mask in zip(batch["images"], batch["masks"], strict=True):
        with torch.no_grad():
            logits = torch.nn.functional.interpolate(model(image[None]), mask.shape, mode="bilinear")
        meter.update([logits[0].argmax(0)], {"masks": [mask]})
    assert meter.pixels.sum() == 2 * 62 * 94  # all but the borders
    assert told["metrics"] == meter.result(lambda parts: parts)


def test_sliding_window(finished, tmp_path):
    file = finished[1] / "best.safetensors"
    slide = {"segmentation.window": "slide", "segmentation.window_stride": 20}
    whole = evaluate_checkpoint(file)["metrics"]
    assert evaluate_checkpoint(file, settings=slide)["metrics"] == whole  # 32 x 32, one window
    large = {"segmentation.short_side": 64, "segmentation.long_side": 64}
    assert (
        evaluate_checkpoint(file, settings=slide | large)["metrics"]
        != evaluate_checkpoint(file, settings=large)["metrics"]
    )


def test_other_classes_are_refused(finished, tmp_path):
    pictures = write_masked_shapes(tmp_path / "shapes", train=1, val=1)
    (pictures / "classes.txt").write_text("disc\nground\nsquare\n")
    with pytest.raises(ValueError, match="in another order"):
        evaluate_checkpoint(finished[1] / "best.safetensors", data_path=str(pictures))
    (pictures / "classes.txt").write_text("ground\ndisc\nsquare\nstar\n")
    with pytest.raises(ValueError, match=r"the dataset has 4 classes, but the model in .* has 3"):
        evaluate_checkpoint(finished[1] / "best.safetensors", data_path=str(pictures))


# --- starting from a classifier ---------------------------------------------------------------------------------------

CLASSIFIER = {"embed_dim": 32, "depth": 2, "d_state": 4, "in_chans": 3}


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A file with a backbone of the small segmenter's, made for other images."""
    path = tmp_path_factory.mktemp("classifier") / "classifier.safetensors"
    torch.manual_seed(7)
    model = tustin.create_model("vim_nano_patch4_32", img_size=16, discretization="zoh", num_classes=10, **CLASSIFIER)
    tustin.save(model, path)
    return path, model


def test_backbone_starts_from_a_classifier(shapes, classifier, tmp_path):
    path, model = classifier
    config = small_segmentation(shapes, tmp_path, model__weights=str(path), model__discretization="zoh")
    vim = Segmentation(config).model.vim
    for name, tensor in model.state_dict().items():
        if name.startswith(("layers.", "patch_embed.", "norm_f.", "cls_token")):
            assert torch.equal(vim.state_dict()[name], tensor), name
    assert vim.pos_embed.shape[1] == 65  # resampled to the crops


def test_classifier_of_another_rule_is_refused(shapes, classifier, tmp_path):
    with pytest.raises(ValueError, match=r"trained with discretization 'zoh', but the model has 'bil'"):
        train(small_segmentation(shapes, tmp_path, model__weights=str(classifier[0])))
    settings = {"model__weights": str(classifier[0]), "model__allow_other_discretization": True}
    assert Segmentation(small_segmentation(shapes, tmp_path, **settings)).model.config["discretization"] == "bil"


def test_backbone_starts_from_a_segmenter(shapes, finished, tmp_path):
    config = small_segmentation(shapes, tmp_path, model__weights=str(finished[1] / "best.safetensors"), seed=9)
    trained, vim = tustin.load(finished[1] / "best.safetensors").vim, Segmentation(config).model.vim
    assert all(torch.equal(trained.state_dict()[name], tensor) for name, tensor in vim.state_dict().items())


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"augment__mixup": 0.8}, r"augment\.mixup has no effect on masks"),
        ({"data__name": "folder"}, r"segmentation needs data\.name ade20k or masks, got 'folder'"),
        ({"data__path": None}, r"data\.path is missing"),
        ({"data__num_classes": 7}, r"has 3 classes, data\.num_classes is 7"),
        ({"optim__batch_size": 1}, "two images per forward pass"),
    ],
)
def test_settings_that_do_not_fit(shapes, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        train(small_segmentation(shapes, tmp_path, **changes))


def test_masks_are_not_for_classification(shapes, tmp_path):
    with pytest.raises(ValueError, match=r"classification needs data\.name digits, .* got 'masks'"):
        train(small(tmp_path, data__name="masks", data__path=str(shapes), augment__shift=0, augment__crop="resized"))
