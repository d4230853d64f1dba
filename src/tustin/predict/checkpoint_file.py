"""A classifier in a checkpoint, run by PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image
from timm.data import create_transform, resolve_model_data_config

__all__ = ["CheckpointClassifier"]


class CheckpointClassifier:
    """What `tustin predict` needs of a classifier."""

    def __init__(self, model: Any) -> None:
        self._model = model
        data = resolve_model_data_config(model)
        self._prepare = create_transform(**data)
        self.num_classes: int = model.num_classes
        self.names: Sequence[str] | None = model.pretrained_cfg.get("label_names")
        self.channels: int = data["input_size"][0]

    def prepare(self, image: Image.Image) -> Any:
        return self._prepare(image)

    def probabilities(self, images: Sequence[Any]) -> Any:
        """(images, classes)."""
        with torch.inference_mode():
            logits = self._model(torch.stack(list(images)).to(self._model.pos_embed.dtype))
        return logits.float().softmax(-1).numpy()
