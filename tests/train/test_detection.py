"""Detection end to end: it learns, it continues with the same bits, it evaluates and draws, and mistakes are named."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from PIL import Image

import tustin
from tests.systems import FUSED
from tustin.cli import main
from tustin.data.coco import coco
from tustin.data.rle import decode
from tustin.data.shapes import write_shapes
from tustin.support.signals import Interrupted
from tustin.train import RunFolder, load_recipe, train
from tustin.train.tasks.detection import Detection, DetectionMeter

from .small import weights
from .small_detection import SMALL, small
from .test_resume import Signal


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    return write_shapes(tmp_path_factory.mktemp("detection") / "shapes", train=8, val=4)


@pytest.fixture(scope="module")
def run(shapes, tmp_path_factory):
    """A finished run, whatever it has learned."""
    out = tmp_path_factory.mktemp("run")
    train(small(shapes, out))
    return out


LEARNING = {
    "updates": 160,
    "model__args": {"patch_size": 8, "embed_dim": 64, "depth": 2, "d_state": 8},
    "detection__min_scale": 0.8,
    "detection__max_scale": 1.2,
    "detection__channels": 24,
    "detection__hidden": 64,
    "detection__proposals": 48,
    "detection__samples": 24,
    "optim__batch_size": 4,
    "optim__base_lr": 0.384,
    "run__eval_updates": 160,
}


def test_learns_shapes(tmp_path):
    data = write_shapes(tmp_path / "shapes", train=200, val=40)
    summary = train(small(data, tmp_path / "run", **LEARNING))
    assert summary["metric"] == "box_ap75"
    assert summary["best"]["box_ap50"] > 70
    assert summary["best"]["mask_ap50"] > 70


@pytest.mark.parametrize("discretization", FUSED)
def test_every_discretization_trains(shapes, tmp_path, discretization):
    summary = train(small(shapes, tmp_path, updates=8, run__eval_updates=4, model__discretization=discretization))
    first, last = (json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert last["train_loss"] < first["train_loss"]
    assert 0 <= summary["best"]["box_ap75"] <= 100
    assert tustin.load(tmp_path / "best.safetensors").config["discretization"] == discretization


def test_interrupted_and_resumed_bit_for_bit(shapes, run, tmp_path):
    with pytest.raises(Interrupted, match="after update 4 of 6"):
        train(small(shapes, tmp_path), display=Signal(signal.SIGTERM, 4))
    assert RunFolder(tmp_path).read_state()["step"] == 4
    train(small(shapes, tmp_path))
    for name in ("last", "best"):
        assert weights(tmp_path, name) == weights(run, name)
    assert records(tmp_path) == records(run)


def records(folder):
    """What does not depend on the clock."""
    of_clock = ("samples_per_second", "train_seconds", "cpu_seconds")
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{key: value for key, value in json.loads(line).items() if key not in of_clock} for line in lines]


def test_workers_do_not_change_the_bits(shapes, run, tmp_path):
    train(small(shapes, tmp_path, data__workers=1))
    assert weights(tmp_path) == weights(run)


@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="needs gloo")
def test_two_processes_evaluate_what_one_does(shapes, tmp_path):
    """With a learning rate of 0 both have the same model; images without objects are among what is trained on."""
    still = {"optim.base_lr": 0.0, "optim.warmup_lr": 0.0, "updates": 4, "run.eval_updates": 4}
    train(load_recipe("coco-tiny-cpu", {**SMALL, **still, "data.path": str(shapes), "out": str(tmp_path / "one")}))
    words = [
        f"--{key}={json.dumps(value) if isinstance(value, dict) else value}"
        for key, value in {**SMALL, **still, "data.path": shapes, "out": tmp_path / "two", "run.device": "auto"}.items()
    ]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "tustin"]
    done = subprocess.run(
        [*launch, "train", "coco-tiny-cpu", *words],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stderr
    one, two = (json.loads((tmp_path / name / "summary.json").read_text()) for name in ("one", "two"))
    assert two["processes"] == 2
    assert weights(tmp_path / "one") == weights(tmp_path / "two")
    assert {key: two["best"][key] for key in two["best"] if key.startswith(("box", "mask"))} == {
        key: one["best"][key] for key in one["best"] if key.startswith(("box", "mask"))
    }


def perfect(data, index):
    """What a perfect detector would return for an image, and the batch it came with."""
    photo = data.photos[index]
    boxes = torch.tensor([one["bbox"] for one in photo.objects], dtype=torch.float32).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    masks = [decode(one["segmentation"], photo.height, photo.width) for one in photo.objects]
    found = {
        "boxes": boxes,
        "scores": torch.ones(len(boxes)),
        "labels": torch.tensor([data.category_ids.index(one["category_id"]) + 1 for one in photo.objects]),
        "masks": torch.stack(masks)[:, None].float() if masks else torch.zeros(0, 1, photo.height, photo.width),
        "proposals": boxes,
    }
    return [found], {"targets": [{"image_id": photo.id}]}


def test_meter_joins_processes_without_duplicates(shapes):
    data = coco(shapes, training=False)
    meters = [DetectionMeter(data) for _ in range(2)]
    for index in range(len(data)):
        meters[index % 2].update(*perfect(data, index))
    meters[1].update(*perfect(data, 0))  # seen by both
    parts = [pair for meter in meters for pair in meter.found.items()]
    for meter in meters:
        assert meter.result(lambda mine: parts)["box_ap"] == pytest.approx(100)
    assert meters[0].result(lambda mine: mine)["box_ap"] == pytest.approx(100)  # of its own half


def test_recall_of_proposals_counts_objects_that_one_overlaps(shapes):
    data = coco(shapes, training=False)
    meter, objects = DetectionMeter(data), 0
    for index in range(len(data)):
        [found], batch = perfect(data, index)
        objects += len(found["boxes"])
        size = found["boxes"][:, 2:] - found["boxes"][:, :2]
        shift = torch.cat([size, size], 1) * torch.tensor([1.0, 0.0, 1.0, 0.0])
        near = found["boxes"] + shift * (0.2 if index == 0 else 0.6)  # to the right, for an IoU of 0.67 or 0.25
        meter.update([{**found, "proposals": near}], batch)
    first = len(data.photos[0].objects)
    assert 0 < first < objects
    assert meter.result(list)["proposal_recall"] == pytest.approx(100 * first / objects)
    nothing = DetectionMeter(data)
    nothing.update([{**perfect(data, 0)[0][0], "proposals": torch.zeros(0, 4)}], perfect(data, 0)[1])
    assert nothing.result(list)["proposal_recall"] == 0


def test_what_is_detected_comes_with_its_proposals(shapes, tmp_path):
    model = Detection(small(shapes, tmp_path)).model.eval()
    images = [torch.rand(3, 48, 80), torch.rand(3, 64, 64)]
    with torch.no_grad():
        found, plain = model.detect(images), model(images)
    for one, same, image in zip(found, plain, images, strict=True):
        assert one.keys() - same.keys() == {"proposals"}
        assert all(torch.equal(one[name], same[name]) for name in same)
        proposals, (height, width) = one["proposals"], image.shape[-2:]
        assert 0 < len(proposals) <= 16
        assert (proposals >= 0).all()
        assert (proposals[:, 2] <= width + 1e-3).all()
        assert (proposals[:, 3] <= height + 1e-3).all()


def test_every_part_of_the_loss_is_recorded(run):
    parts = {name: value for name, value in records(run)[-1].items() if name.startswith("train_loss/")}
    stages = [f"stage_{number}_{part}" for number in (1, 2, 3) for part in ("classes", "boxes")]
    told = ["proposals_objectness", "proposals_boxes", *stages, "masks"]
    assert [name.removeprefix("train_loss/") for name in parts] == told
    assert sum(parts.values()) == pytest.approx(records(run)[-1]["train_loss"])


def test_nothing_to_evaluate_is_told(shapes):
    data = coco(shapes, training=False)
    empty = replace(data, annotations={**data.annotations, "annotations": []})
    meter = DetectionMeter(empty)
    meter.update(*perfect(data, 0))
    with pytest.raises(ValueError, match="no object in the 1 images"):
        meter.result(lambda mine: mine)


def test_diagnosis_looks_into_the_backbone(shapes, tmp_path):
    task = Detection(small(shapes, tmp_path))
    batch = task.train_data.__getitems__([(0, 0), (1, 1)])
    task.model.vim.layers[0].mixer.in_proj.weight.data[0, 0] = float("nan")
    diagnosis = task.diagnose(task.model.train(), batch)
    assert diagnosis.first_non_finite.layer == "layers.0.mixer"


def test_backbone_starts_from_a_classifier_with_the_guard(shapes, tmp_path):
    torch.manual_seed(0)
    settings = {"patch_size": 8, "embed_dim": 16, "depth": 1, "d_state": 4}
    classifier = tustin.create_model("vim_tiny_patch16_224", img_size=32, discretization="zoh", **settings)
    path = tmp_path / "classifier.safetensors"
    tustin.save(classifier, path)
    with pytest.raises(ValueError, match="zoh"):
        Detection(small(shapes, tmp_path, model__weights=str(path)))
    task = Detection(small(shapes, tmp_path, model__weights=str(path), model__discretization="zoh"))
    assert torch.equal(task.model.vim.norm_f.weight, classifier.norm_f.weight)
    assert torch.equal(task.model.vim.layers[0].mixer.A_log, classifier.layers[0].mixer.A_log)
    assert task.model.vim.pos_embed.shape == (1, 65, 16)  # 4 x 4 patches resampled to 8 x 8


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"data__name": "folder"}, "detection needs data.name coco"),
        ({"data__path": None}, "data.path is missing"),
        ({"data__num_classes": 80}, "has 3 classes, data.num_classes is 80"),
        ({"augment__mixup": 0.8}, "augment.mixup has no effect on coco"),
    ],
)
def test_wrong_settings_are_named(shapes, tmp_path, changes, why):
    with pytest.raises(ValueError, match=why):
        Detection(small(shapes, tmp_path, **changes))


def test_halves_must_have_the_same_categories(tmp_path):
    data = write_shapes(tmp_path / "shapes", train=2, val=2)
    file = data / "annotations" / "instances_val2017.json"
    file.write_text(file.read_text().replace("triangle", "pyramid"))
    with pytest.raises(ValueError, match="categories of train2017 and val2017"):
        Detection(small(data, tmp_path))


# --- recipes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "width"), [("coco-vim-tiny", 192), ("coco-vim-small", 384)])
def test_recipe_has_the_papers_settings(shapes, tmp_path, name, width):
    recipe = load_recipe(name)
    assert recipe.task == "detection"
    assert (recipe.updates, recipe.optim.batch_size, recipe.optim.weight_decay) == (380_000, 64, 0.1)
    assert recipe.optim.lr == pytest.approx(1e-4)
    assert (recipe.optim.name, recipe.optim.schedule, recipe.optim.min_lr) == ("adamw", "linear", 0)
    assert recipe.model.img_size == 1024
    assert (recipe.detection.min_scale, recipe.detection.max_scale) == (0.1, 2.0)
    changes = {name: value for name, value in SMALL.items() if name.startswith(("detection", "run"))}
    here = {"data.path": str(shapes), "out": str(tmp_path), "data.num_classes": 3, "data.workers": 0, "updates": 2}
    model = {"model.img_size": 64, "model.args": {"depth": 1}, "optim.batch_size": 2, "run.mixed_precision": "no"}
    summary = train(load_recipe(name, {**changes, **here, **model}))
    assert summary["last"]["updates"] == 2
    assert tustin.load(tmp_path / "last.safetensors").vim.embed_dim == width


# --- commands ---------------------------------------------------------------------------------------------------------


def test_eval(run, shapes, capsys):
    assert main(["eval", str(run / "last.safetensors"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["samples"] == 4
    last = records(run)[-1]
    measured = {name: value for name, value in last.items() if name.startswith(("box", "mask", "proposal"))}
    assert result["metrics"] == pytest.approx(measured)
    assert main(["eval", str(run / "last.safetensors"), "--data.path", str(shapes), "--batch-size", "1"]) == 0
    told = capsys.readouterr().out
    assert "box AP at IoU 0.75" in told
    assert "AR, 100 detections per image" in told


def test_predict_draws_and_tells(run, shapes, tmp_path, capsys):
    images = shapes / "val2017"
    (tmp_path / "broken.png").write_bytes(b"nothing")
    words = ["--checkpoint", str(run / "last.safetensors"), "--task", "detection", "--out", str(tmp_path / "drawn")]
    code = main(["predict", str(images), str(tmp_path / "broken.png"), *words, "--score", "0.2", "--json"])
    told = capsys.readouterr()
    assert code == 1
    assert "skipped" in told.err
    results = json.loads(told.out)
    assert {one["category_id"] for one in results} <= {3, 7, 11}
    for one in results:
        assert one["image_id"] in (1, 2, 3, 4)  # the number in the name of COCO's files
        assert one.keys() == {"image_id", "category_id", "bbox", "score", "segmentation"}
        decode(one["segmentation"], 64, 64)
    drawn = sorted((tmp_path / "drawn").iterdir())
    assert [path.name for path in drawn] == [f"{n:012d}-objects.png" for n in (1, 2, 3, 4)]
    with Image.open(drawn[0]) as picture:
        assert picture.size == (64, 64)


def test_predict_draws_objects_in_colour():
    """Two that overlap, best first: where both are, the best is seen, and the image through it."""
    from tustin.predict.boxes import draw

    shown = {
        "boxes": torch.tensor([[10.0, 30.0, 40.0, 60.0], [20.0, 30.0, 70.0, 60.0]]),
        "scores": torch.tensor([0.9, 0.8]),
        "labels": torch.tensor([1, 2]),
        "masks": torch.zeros(2, 1, 80, 80),
    }
    shown["masks"][0, 0, 35:55, 15:35] = 1
    shown["masks"][1, 0, 35:55, 25:65] = 1
    pixels = draw(Image.new("RGB", (80, 80), "white"), shown, ["cat", "dog"]).load()
    assert pixels[10, 45] != (255, 255, 255)  # the edge of the first box
    assert pixels[18, 45] == pixels[30, 45] != pixels[50, 45]  # the first mask, both, the second
    assert pixels[18, 45] not in ((255, 255, 255), pixels[10, 45])
    assert pixels[12, 56] == (255, 255, 255)  # inside the box, outside the mask
    assert pixels[75, 75] == (255, 255, 255)


def test_predict_of_another_task_is_refused(run, shapes, capsys):
    image = str(shapes / "val2017" / "000000000001.png")
    assert main(["predict", image, "--checkpoint", str(run / "last.safetensors"), "--task", "segmentation"]) == 1
    assert "is a model for detection" in capsys.readouterr().err
