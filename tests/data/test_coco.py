"""COCO's layout: what is read, what training does to it, and which mistakes are named."""

import json
import math
from dataclasses import replace

import pytest
import torch
from torchvision import tv_tensors

from tustin.data.coco import as_results, coco, large_scale_jitter, visible
from tustin.data.rle import decode
from tustin.data.shapes import CATEGORIES, write_shapes

MEAN = (0.5, 0.5, 0.5)


@pytest.fixture
def shapes(tmp_path):
    return write_shapes(tmp_path / "shapes", train=8, val=3, side=48)


def annotations(root, part="train2017"):
    return root / "annotations" / f"instances_{part}.json"


def change(root, edit, part="train2017"):
    """Rewrite the annotations after `edit` has changed them."""
    content = json.loads(annotations(root, part).read_text())
    edit(content)
    annotations(root, part).write_text(json.dumps(content))
    return content


def training(root, side=48, scale=(1.0, 1.0), flip=0.0, **options):
    return replace(coco(root, training=True, **options), jitter=large_scale_jitter(side, MEAN, scale, flip))


def test_everything_is_there(shapes):
    data = training(shapes)
    content = json.loads(annotations(shapes).read_text())
    batch = data.__getitems__([(i, 0) for i in range(8)])
    assert data.classes == [category["name"] for category in CATEGORIES]
    assert data.category_ids == [3, 7, 11]
    for number, (image, target) in enumerate(zip(batch["images"], batch["targets"], strict=True), start=1):
        objects = [one for one in content["annotations"] if one["image_id"] == number]
        assert image.shape == (3, 48, 48)
        assert target["labels"].tolist() == [data.category_ids.index(one["category_id"]) + 1 for one in objects]
        for box, mask, one in zip(target["boxes"], target["masks"], objects, strict=True):
            left, top, width, height = one["bbox"]
            torch.testing.assert_close(box, torch.tensor([left, top, left + width, top + height]))
            assert torch.equal(mask, decode(one["segmentation"], 48, 48))
            assert image[:, mask.bool()].amax() > 0.7  # the mask lies on the shape
    assert len(batch["targets"][7]["boxes"]) == 0  # the eighth image shows none
    assert batch["targets"][7]["masks"].shape == (0, 48, 48)


def test_evaluation_keeps_the_size_and_tells_the_image(shapes):
    batch = coco(shapes, training=False).__getitems__([(0, 0), (2, 0)])
    assert [image.shape for image in batch["images"]] == [(3, 48, 48)] * 2
    assert [type(image) for image in batch["images"]] == [torch.Tensor] * 2
    assert batch["targets"] == [{"image_id": 1}, {"image_id": 3}]


def test_the_seed_decides_the_jitter(shapes):
    data = training(shapes, scale=(0.1, 2.0), flip=0.5)
    first, again, other = (data.__getitems__([(0, seed)]) for seed in (5, 5, 6))
    assert torch.equal(first["images"][0], again["images"][0])
    assert torch.equal(first["targets"][0]["masks"], again["targets"][0]["masks"])
    assert not torch.equal(first["images"][0], other["images"][0])


@pytest.mark.parametrize("seed", range(12))
def test_jitter_moves_image_boxes_and_masks_together(shapes, seed):
    batch = training(shapes, 64, (0.1, 2.0), 0.5).__getitems__([(0, seed)])
    image, target = batch["images"][0], batch["targets"][0]
    assert image.shape == (3, 64, 64)
    assert image.dtype == torch.float32
    for box, mask in zip(target["boxes"], target["masks"], strict=True):
        rows, columns = mask.nonzero().unbind(1)
        edges = torch.stack([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]).float()
        assert (box - edges).abs().max() <= 2
        assert (box[2:] - box[:2]).min() >= 1
        if mask.sum() > 20:
            assert image[:, mask.bool()].amax(0).median() > 0.5


def test_jitter_reaches_both_ends():
    widths = []
    jitter = large_scale_jitter(64, MEAN)
    for seed in range(60):
        torch.manual_seed(seed)
        target = {
            "boxes": tv_tensors.BoundingBoxes(torch.tensor([[8.0, 8, 24, 24]]), format="XYXY", canvas_size=(32, 32)),
            "labels": torch.tensor([1]),
            "masks": tv_tensors.Mask(torch.ones(1, 32, 32, dtype=torch.uint8)),
        }
        _, target = jitter(tv_tensors.Image(torch.zeros(3, 32, 32, dtype=torch.uint8)), target)
        widths += (target["boxes"][:, 2] - target["boxes"][:, 0]).tolist()
    assert min(widths) < 8  # of half the image, which is 32 pixels at scale 1
    assert max(widths) > 50


def test_filling_has_the_mean_colour(shapes):
    data = replace(training(shapes), jitter=large_scale_jitter(64, (0.2, 0.4, 0.6), (0.5, 0.5), 0.0))
    image = data.__getitems__([(0, 1)])["images"][0]
    filled = (image - torch.tensor([0.2, 0.4, 0.6])[:, None, None]).abs().amax(0) < 0.003
    assert filled.float().mean() > 0.7  # the image itself has a quarter


def test_visible_drops_what_is_cut_away_and_tightens_the_rest():
    masks = torch.zeros(4, 20, 20, dtype=torch.uint8)
    masks[0, 5:10, 5:10] = 1  # whole
    masks[1, 0:3, 0:20] = 1  # of an object whose box reaches far below what is left of it
    masks[3, 0:1, 0:1] = 1  # a sliver
    boxes = torch.tensor([[5.2, 5.0, 9.7, 10.0], [0, 0, 20, 20.0], [3, 3, 8, 8.0], [0, 0, 0.4, 20]])
    left = visible({"boxes": boxes, "labels": torch.tensor([1, 2, 3, 4]), "masks": masks})
    assert left["labels"].tolist() == [1, 2]
    torch.testing.assert_close(left["boxes"], torch.tensor([[5.2, 5.0, 9.7, 10.0], [0, 0, 20, 4.0]]))
    assert len(left["masks"]) == 2


def test_crowds_are_not_learned(shapes):
    def edit(content):
        for one in content["annotations"]:
            one["iscrowd"] = int(one["image_id"] == 1 or one["id"] == max(a["id"] for a in content["annotations"]))

    content = change(shapes, edit)
    data = training(shapes)
    assert 1 not in [photo.id for photo in data.photos]  # it shows crowds and nothing else
    assert 8 in [photo.id for photo in data.photos]  # it shows nothing at all
    assert sum(len(photo.objects) for photo in data.photos) == sum(not one["iscrowd"] for one in content["annotations"])


def test_evaluation_keeps_images_of_crowds(shapes):
    change(shapes, lambda content: [one.update(iscrowd=1) for one in content["annotations"]], "val2017")
    assert len(coco(shapes, training=False)) == 3


@pytest.mark.parametrize("part", ["train2017", "val2017"])
@pytest.mark.parametrize("box", [[5, 5, 0, 10], [5, 5, 10, 0], [5, 5, -3, 10], [60, 5, 10, 10]])
def test_box_without_area_is_refused_by_name(shapes, box, part):
    change(shapes, lambda content: content["annotations"][1].update(bbox=box, id=918), part)
    with pytest.raises(ValueError, match=rf"annotation 918 in .*{part}.*has no area in an image of 48 x 48.*skip_"):
        coco(shapes, training=part == "train2017")


def test_box_without_area_is_left_out_on_request(shapes):
    content = change(shapes, lambda content: content["annotations"][1].update(bbox=[5, 5, 0, 10]))
    data = coco(shapes, training=True, skip_corrupt=True)
    assert sum(len(photo.objects) for photo in data.photos) == len(content["annotations"]) - 1


def test_box_over_the_border_is_cut(shapes):
    def edit(content):
        content["annotations"][0]["bbox"] = [-3, -2, 200, 200]
        content["annotations"][0]["segmentation"] = [[0, 0, 48, 0, 48, 48, 0, 48]]

    change(shapes, edit)
    target = training(shapes).__getitems__([(0, 0)])["targets"][0]
    assert target["boxes"][0].tolist() == [0, 0, 48, 48]


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (lambda content: content["annotations"][0].update(image_id=99), "there is no image 99"),
        (lambda content: content["annotations"][0].update(category_id=99), "there is no category 99"),
        (lambda content: content["annotations"][0].pop("bbox"), "has no 'bbox'"),
        (lambda content: content.pop("categories"), "no list 'categories'"),
        (lambda content: content.update(images=[], annotations=[]), "contains no usable image"),
    ],
)
def test_mistakes_in_the_annotations_are_named(shapes, edit, why):
    change(shapes, edit)
    with pytest.raises(ValueError, match=why):
        coco(shapes, training=True)


@pytest.mark.parametrize("text", ["{", "[" * 100_000, '{"images": ' + "1" * 5000 + "}", "\udcff"], ids=range(4))
def test_file_that_is_not_json(shapes, text):
    annotations(shapes).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=r"instances_train2017\.json' is not JSON"):
        coco(shapes, training=True)


HUGE = 10**400
WRONG = {
    "images": {
        "id": [None, "1", [1], 1.5, -1, 2**63, True, {}],
        "file_name": [None, 3, "", "../secret.png", "/etc/passwd", "a\\..\\..\\b.png", "a\0b", []],
        "height": [None, 0, -4, "48", 48.0, HUGE, [48]],
        "width": [None, 0, math.nan, 2**17],
    },
    "annotations": {
        "id": [None, "x", [], HUGE],
        "image_id": [None, [1], {"a": 1}, "1"],
        "category_id": [None, [3], 3.0, HUGE],
        "bbox": [None, [], [1, 2, 3], [1, 2, 3, 4, 5], "1234", [1, 2, None, 4], [1, 2, "3", 4], [math.nan] * 4],
        "area": [None, "9", math.inf, -1],
        "iscrowd": [None, 2, "0", [0]],
    },
    "categories": {"id": [None, "3", [3], -3], "name": [None, 3, ["cat"]]},
}
CASES = [(name, key, value) for name, keys in WRONG.items() for key, values in keys.items() for value in values]


@pytest.mark.parametrize(("name", "key", "value"), CASES, ids=range(len(CASES)))
def test_values_of_the_wrong_kind_are_named(shapes, name, key, value):
    change(shapes, lambda content: content[name][1].update({key: value}))
    with pytest.raises(ValueError, match=rf"entry 1 of '{name}' in .*train2017\.json': {key} must "):
        coco(shapes, training=True)


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("entry", [None, 3, "text", [1, 2]])
def test_entries_that_are_no_mappings(shapes, name, entry):
    change(shapes, lambda content: content[name].insert(0, entry))
    with pytest.raises(ValueError, match=rf"entry 0 of '{name}' in .* must be a mapping, got"):
        coco(shapes, training=True)


@pytest.mark.parametrize("name", WRONG)
def test_ids_are_given_once(shapes, name):
    change(shapes, lambda content: content[name][2].update(id=content[name][0]["id"]))
    with pytest.raises(ValueError, match=rf"entries 0 and 2 of '{name}' in .* have the same id"):
        coco(shapes, training=True)


MASKS = [None, 3, [], [[1, 2, 3, 4, 5]], [[1, 2, 3, 4, 5, 6, 7]], [["1"] * 6], [[True] * 6], [[1e300, 0, 5, 5, 0, 5]]]
MASKS += [{"size": [48, 47], "counts": [48 * 47]}, {"size": 48, "counts": "x"}, {"size": [48, 48], "counts": {}}]
MASKS += [{"size": [48, 48], "counts": "o" * 100_000}, {"size": None, "counts": None}, [[HUGE, 0, 5, 5, 0, 5]]]


@pytest.mark.parametrize("segmentation", MASKS, ids=range(len(MASKS)))
def test_masks_of_the_wrong_kind_are_named(shapes, segmentation):
    change(shapes, lambda content: content["annotations"][0].update(segmentation=segmentation, id=907), "val2017")
    with pytest.raises(ValueError, match=r"annotation 907 in .*val2017\.json': (its|the) "):
        coco(shapes, training=False)


@pytest.mark.parametrize("missing", ["train2017", "annotations"])
def test_missing_folder_is_named(shapes, missing):
    (shapes / missing).rename(shapes / "elsewhere")
    with pytest.raises(FileNotFoundError, match=missing):
        coco(shapes, training=True)


def test_mask_that_is_none_is_named_with_its_annotation(shapes):
    change(shapes, lambda content: content["annotations"][0].update(segmentation=[], id=905))
    assert "annotation 905 of" in training(shapes).__getitems__([(0, 0)])["error"]
    change(shapes, lambda content: content["annotations"][0].update(segmentation=[], id=906), "val2017")
    with pytest.raises(ValueError, match=r"annotation 906 in .*not a list of polygons"):
        coco(shapes, training=False)
    left = coco(shapes, training=False, skip_corrupt=True).annotations["annotations"]
    assert 906 not in [one["id"] for one in left]


def test_image_that_cannot_be_read(shapes):
    (shapes / "train2017" / "000000000002.png").write_bytes(b"nothing")
    keys = [(0, 0), (1, 0), (2, 0)]
    assert "000000000002.png" in training(shapes).__getitems__(keys)["error"]
    batch = training(shapes, skip_corrupt=True).__getitems__(keys)
    assert batch["skipped"] == 1
    assert len(batch["images"]) == 3  # another takes its place, so that the batch keeps its size


def test_image_of_another_size_than_told(shapes):
    change(shapes, lambda content: content["images"][0].update(width=50))
    assert "is 48 x 48, but its annotations say 50 x 48" in training(shapes).__getitems__([(0, 0)])["error"]


def test_results_are_in_cocos_format():
    masks = torch.zeros(1, 1, 6, 8)
    masks[0, 0, 1:4, 2:5] = 0.9
    found = {
        "boxes": torch.tensor([[2.0, 1.0, 5.0, 4.0]]),
        "scores": torch.tensor([0.5]),
        "labels": torch.tensor([2]),
        "masks": masks,
    }
    (result,) = as_results(found, 42, [3, 7, 11])
    assert json.loads(json.dumps(result)) == result
    assert torch.equal(decode(result.pop("segmentation"), 6, 8).bool(), masks[0, 0] > 0.5)
    assert result == {"image_id": 42, "category_id": 7, "bbox": [2.0, 1.0, 3.0, 3.0], "score": 0.5}
