"""What happens to an image happens to its mask, by the seed and within the limits that the settings give."""

import numpy as np
import pytest
import torch
from PIL import Image

from tustin.data.images import seed_augmentation
from tustin.data.mask_transforms import ForEvaluation, ForTraining, largest_share
from tustin.data.masks import UNLABELLED
from tustin.support.masks import fitted

PLAIN = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}


def pair(height=60, width=90):
    """A mask of four stripes, and an image that shows 50 times their number."""
    mask = torch.arange(width).mul(4).div(width, rounding_mode="floor").expand(height, width).contiguous()
    image = Image.fromarray((50 * mask)[..., None].expand(-1, -1, 3).to(torch.uint8).numpy())
    return image, mask


def augmented(seed, image=None, mask=None, **options):
    transform = ForTraining(**PLAIN, **{"side": 40, "short_side": 60, "photometric": False, **options})
    seed_augmentation(seed)
    return transform(*(pair() if image is None else (image, mask)))


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((512, 683), (512, 683)),
        ((683, 512), (683, 512)),
        ((256, 341), (512, 682)),
        ((100, 1000), (205, 2048)),
        ((1, 5000), (1, 2048)),
    ],
)
def test_fitted_to_the_short_side_and_the_long_one(size, expected):
    assert fitted(*size, 2048, 512) == expected


def test_no_image_is_enlarged_until_it_fills_the_memory():
    with pytest.raises(ValueError, match="images would be enlarged to 65536 x 65536 pixels, more than 134,217,728"):
        fitted(10, 10, 65536, 65536)


@pytest.mark.parametrize("seed", range(8))
def test_image_and_mask_stay_together(seed):
    image, mask = augmented(seed, min_scale=0.5, max_scale=2.0)
    assert image.shape == (3, 40, 40)
    assert mask.shape == (40, 40)
    labelled = mask != UNLABELLED
    shown = (image[0] * 255 / 50).round().long()
    assert (shown == mask)[labelled].float().mean() > 0.9  # all but where stripes meet
    assert not image[:, ~labelled].any()


def test_without_a_scale_they_agree_at_every_pixel():
    image, mask = augmented(3, min_scale=1.0, max_scale=1.0)
    assert torch.equal((image[0] * 255).round().long(), 50 * mask)


def test_small_image_is_filled_up_with_no_class():
    image, mask = augmented(0, min_scale=0.5, max_scale=0.5)  # 30 x 45
    assert (mask[30:] == UNLABELLED).all()
    assert (mask[:30, :] != UNLABELLED).all()
    assert not image[:, 30:].any()


def test_seed_decides():
    one, same, other = augmented(1), augmented(1), augmented(2)
    assert torch.equal(one[0], same[0])
    assert torch.equal(one[1], same[1])
    assert not torch.equal(one[1], other[1])


def test_flip():
    still = augmented(5, flip=0.0)
    turned = augmented(5, flip=1.0)
    assert torch.equal(still[1].flip(1), turned[1])


def test_crop_does_not_show_too_much_of_one_class():
    mask = torch.zeros(40, 200, dtype=torch.int64)
    mask[:, 40:80] = mask[:, 120:160] = 1  # half of all crops show enough of both
    image = Image.fromarray(np.zeros((40, 200, 3), np.uint8))
    options = {"image": image, "mask": mask, "short_side": 40, "min_scale": 1.0, "max_scale": 1.0}
    limited = [largest_share(augmented(seed, category_ratio=0.75, **options)[1]) for seed in range(30)]
    free = [largest_share(augmented(seed, category_ratio=1.0, **options)[1]) for seed in range(30)]
    assert max(limited) <= 0.75
    assert sum(share > 0.75 for share in free) > 10


def test_share_counts_labelled_pixels_only():
    assert largest_share(torch.tensor([UNLABELLED, UNLABELLED, 2, 2, 2, 5])) == 0.75
    assert largest_share(torch.full((4,), UNLABELLED)) == 1.0


def test_distortion_changes_the_image_alone():
    plain, distorted = augmented(4), [augmented(4, photometric=True) for _ in range(2)]
    assert torch.equal(plain[1], distorted[0][1])
    assert not torch.equal(plain[0], distorted[0][0])
    assert torch.equal(distorted[0][0], distorted[1][0])


def test_evaluation_resizes_and_normalises_the_image_only():
    image, mask = pair(30, 20)
    prepare = ForEvaluation(mean=(0.5,) * 3, std=(0.25,) * 3, long_side=1000, short_side=40)
    pixels, same = prepare(image, mask)
    assert same is mask
    assert pixels.shape == (3, 60, 40)
    assert pixels.min() == pytest.approx(-2.0, abs=1e-6)
