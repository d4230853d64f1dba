"""Where the class token is, and what happens to positions when the grid changes."""

import pytest
import torch
from torch import Tensor

from tustin.models import resample_pos_embed
from tustin.models.tokens import insert_middle, middle_token, split_middle


@pytest.mark.parametrize("n", [1, 2, 3, 8, 9])
def test_insert_and_split_are_inverse(n: int) -> None:
    patches, token = torch.randn(2, n, 3), torch.randn(1, 1, 3)
    tokens = insert_middle(patches, token)
    assert torch.equal(tokens[:, n // 2], token[0].expand(2, -1))
    assert torch.equal(middle_token(tokens), token[0].expand(2, -1))
    again, middle = split_middle(tokens)
    assert torch.equal(again, patches)
    assert torch.equal(middle, token.expand(2, -1, -1))


def ramp(height: int, width: int) -> Tensor:
    """Positions whose two features are row and column, in units of the picture's sides; the class token has (7, 8)."""
    rows = (torch.arange(height) + 0.5) / height
    columns = (torch.arange(width) + 0.5) / width
    grid = torch.stack(torch.meshgrid(rows, columns, indexing="ij"), dim=-1).flatten(0, 1)[None]
    return insert_middle(grid, torch.tensor([[[7.0, 8.0]]]))


@pytest.mark.parametrize("new", [(14, 14), (9, 20), (28, 12), (7, 5), (1, 3)])
def test_resampling_keeps_a_ramp_and_the_middle(new: tuple[int, int]) -> None:
    """A class token taken for row 0, or height for width, would show at once."""
    got = resample_pos_embed(ramp(14, 10), (14, 10), new)
    assert torch.equal(middle_token(got), torch.tensor([[7.0, 8.0]]))
    patches, expected = (split_middle(t)[0].unflatten(1, new) for t in (got, ramp(*new)))
    inside = tuple(slice(side // 4, side - side // 4) for side in new)  # at the border there is nothing to look beyond
    torch.testing.assert_close(patches[0][inside], expected[0][inside], rtol=0, atol=0.02)


def test_the_same_grid_is_left_alone() -> None:
    positions = ramp(4, 5)
    assert resample_pos_embed(positions, (4, 5), (4, 5)) is positions


def test_a_grid_of_the_same_size_but_another_shape_is_not() -> None:
    assert not torch.allclose(resample_pos_embed(ramp(4, 6), (4, 6), (6, 4)), ramp(4, 6))


def test_bfloat16_is_resampled_in_float32() -> None:
    positions = torch.randn(1, 17, 3).bfloat16()
    got = resample_pos_embed(positions, (4, 4), (6, 5))
    assert got.dtype == torch.bfloat16
    assert torch.equal(got, resample_pos_embed(positions.float(), (4, 4), (6, 5)).bfloat16())


def test_wrong_grid() -> None:
    with pytest.raises(ValueError, match=r"pos_embed has 197 rows, but a grid of 14 x 13 patches .* need 183"):
        resample_pos_embed(torch.zeros(1, 197, 2), (14, 13), (7, 7))
