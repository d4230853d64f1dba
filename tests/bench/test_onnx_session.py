"""What is timed of exported models: the model itself, in onnxruntime."""

from typing import Any

import pytest
import torch

import tustin


def test_what_is_timed_is_the_model() -> None:
    """Of ours and of a stranger's, at a number of images that was not exported."""
    pytest.importorskip("onnxruntime")
    from tustin.bench import onnx_session

    torch.manual_seed(0)
    ours = tustin.create_model("vim_nano_patch4_32", depth=2, num_classes=5).eval()
    stranger = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 4), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()).eval()
    images = torch.randn(3, 3, 32, 32)
    for model in (ours, stranger):
        results: Any = onnx_session.make_call(model, images, 1)()
        with torch.inference_mode():
            torch.testing.assert_close(torch.from_numpy(results[0]), model(images), rtol=1e-4, atol=1e-5)
