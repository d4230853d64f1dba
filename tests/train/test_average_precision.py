"""COCO's figures against what can be computed by hand."""

import pytest
import torch

from tustin.data.coco import coco
from tustin.data.rle import decode, encode
from tustin.data.shapes import write_shapes
from tustin.train.average_precision import FIGURES, coco_figures

SIDE = 200


def box_and_mask(left, top, width, height):
    mask = torch.zeros(SIDE, SIDE)
    mask[top : top + height, left : left + width] = 1
    return {"bbox": [left, top, width, height], "segmentation": encode(mask)}


def annotations(*objects, images=1, **more):
    """`objects` are (image, box); all of one class."""
    return {
        "images": [{"id": i + 1, "file_name": f"{i}.png", "width": SIDE, "height": SIDE} for i in range(images)],
        "categories": [{"id": 5, "name": "thing"}],
        "annotations": [
            {
                "id": number,
                "image_id": image,
                "category_id": 5,
                "area": box[2] * box[3],
                "iscrowd": 0,
                **box_and_mask(*box),
                **more,
            }
            for number, (image, box) in enumerate(objects, start=1)
        ],
    }


def detection(score, box, image=1, category=5):
    return {"image_id": image, "category_id": category, "score": score, **box_and_mask(*box)}


FIRST, SECOND = (0, 0, 100, 100), (100, 100, 50, 100)


def test_perfect_predictions_have_an_ap_of_100(tmp_path):
    data = coco(write_shapes(tmp_path / "shapes", train=1, val=12), training=False)
    found = [{**one, "score": 0.9} for one in data.annotations["annotations"]]
    for one in found:
        one["segmentation"] = encode(decode(one["segmentation"], 64, 64))
    figures = coco_figures(data.annotations, found, range(1, 13))
    for kind in ("box", "mask"):
        for name in ("ap75", "ap", "ap50", "ap_small", "ar100"):
            assert figures[f"{kind}_{name}"] == pytest.approx(100)


def test_hand_made_case():
    """Best first: the first object exactly, nothing, the second one with an IoU of 0.81.

    Precision is 1 up to half of the recall and 2/3 after it, so that of the 101 points of recall at which COCO looks 51
    have 1 and 50 have 2/3. From an IoU of 0.85 on, for 3 of the 10 thresholds, the second object is not found.
    """
    truth = annotations((1, FIRST), (1, SECOND))
    found = [detection(0.9, FIRST), detection(0.8, (0, 150, 40, 40)), detection(0.7, (100, 100, 50, 81))]
    figures = coco_figures(truth, found, [1])
    both, one = (51 + 50 * 2 / 3) / 101, 51 / 101
    for kind in ("box", "mask"):
        assert figures[f"{kind}_ap50"] == pytest.approx(100 * both)
        assert figures[f"{kind}_ap75"] == pytest.approx(100 * both)
        assert figures[f"{kind}_ap"] == pytest.approx(100 * (7 * both + 3 * one) / 10)
        assert figures[f"{kind}_ar1"] == pytest.approx(50)
        assert figures[f"{kind}_ar10"] == pytest.approx(100 * (7 * 1 + 3 * 0.5) / 10)


def test_an_object_with_the_id_0_counts_as_any_other():
    truth = annotations((1, FIRST), (1, SECOND))
    found = [detection(0.9, FIRST), detection(0.8, SECOND)]
    expected = coco_figures(truth, found, [1])
    for number, one in enumerate(truth["annotations"]):
        one["id"] = number
    assert coco_figures(truth, found, [1]) == expected
    assert expected["box_ap"] == pytest.approx(100)


def test_names_come_with_the_papers_figure_first():
    figures = coco_figures(annotations((1, FIRST), (1, (0, 0, 20, 20)), (1, (0, 0, 50, 50))), [], [1])
    assert list(figures) == [f"{kind}_{name}" for kind in ("box", "mask") for name in FIGURES]
    assert len(FIGURES) == 12
    assert set(figures.values()) == {0.0}


def test_a_figure_without_an_object_is_left_out():
    figures = coco_figures(annotations((1, FIRST)), [detection(0.9, FIRST)], [1])
    assert "box_ap_small" not in figures
    assert figures["box_ap_large"] == pytest.approx(100)


def test_what_is_found_in_a_crowd_does_not_count():
    truth = annotations((1, FIRST))
    crowd = annotations((1, SECOND), iscrowd=1)["annotations"][0]
    truth["annotations"].append({**crowd, "id": 2})
    inside, outside = detection(0.95, (110, 110, 20, 20)), detection(0.95, (0, 110, 20, 20))
    with_crowd, with_mistake = (coco_figures(truth, [one, detection(0.9, FIRST)], [1]) for one in (inside, outside))
    assert with_crowd["box_ap"] == with_crowd["mask_ap"] == pytest.approx(100)
    assert with_mistake["box_ap"] == pytest.approx(50)


def test_images_without_objects_count_what_is_found_there():
    truth = annotations((1, FIRST), images=2)
    right, wrong = detection(0.5, FIRST), detection(0.9, FIRST, image=2)
    assert coco_figures(truth, [right], [1, 2])["box_ap"] == pytest.approx(100)
    assert coco_figures(truth, [right, wrong], [1, 2])["box_ap"] == pytest.approx(50)


def test_only_the_images_looked_at_count():
    truth = annotations((1, FIRST), (2, FIRST), images=2)
    assert coco_figures(truth, [detection(0.9, FIRST)], [1])["box_ap"] == pytest.approx(100)
    assert coco_figures(truth, [detection(0.9, FIRST)], [1, 2])["box_ap"] < 60


def test_mask_figures_judge_masks():
    """A box that is right around a mask that is half of it."""
    half = {**detection(0.9, FIRST), "segmentation": box_and_mask(0, 0, 50, 100)["segmentation"]}
    figures = coco_figures(annotations((1, FIRST)), [half], [1])
    assert figures["box_ap75"] == pytest.approx(100)
    assert figures["mask_ap75"] == 0


def test_the_annotations_stay_as_they_are():
    truth = annotations((1, FIRST))
    before = repr(truth)
    coco_figures(truth, [detection(0.9, FIRST)], [1])
    assert repr(truth) == before
