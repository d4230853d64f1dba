"""A classifier or a segmenter in a checkpoint, run by PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from PIL import Image
from timm.data import create_transform, resolve_model_data_config

from ..data.mask_transforms import ForEvaluation
from ..support.masks import Pixels
from ..train.evaluation import reading_of_masks, settings_in
from ..train.tasks.segmentation import segment

__all__ = ["CheckpointClassifier", "CheckpointSegmenter"]


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


class CheckpointSegmenter:
    """What `tustin predict` needs of a segmenter; `told` is what the checkpoint says about itself."""

    def __init__(self, model: Any, told: Mapping[str, Any]) -> None:
        self._model = model
        self._settings, self.unlabelled = reading_of_masks(settings_in(told))
        data = resolve_model_data_config(model.vim)
        limits = self._settings.long_side, self._settings.short_side
        self._prepare = ForEvaluation(data["mean"], data["std"], *limits).prepare
        self.num_classes: int = model.num_classes
        self.names: Sequence[str] | None = model.pretrained_cfg.get("label_names")
        self.channels: int = data["input_size"][0]

    def segment(self, image: Image.Image) -> Pixels:
        """The class of every pixel (height, width)."""
        prepared = self._prepare(image).to(self._model.vim.pos_embed.dtype)
        classes: Pixels = segment(self._model, prepared, (image.height, image.width), self._settings).numpy()
        return classes
