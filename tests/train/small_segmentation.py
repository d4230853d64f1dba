"""A segmenter that trains in seconds: shapes of 32 pixels, two narrow blocks, a narrow head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tustin.train import Config, load_recipe

SETTINGS: dict[str, Any] = {
    "updates": 4,
    "model.name": "vim_nano_patch4_32",
    "model.img_size": 32,
    "model.args": {"embed_dim": 32, "depth": 2, "d_state": 4},
    "data.name": "masks",
    "data.num_classes": 3,
    "data.workers": 0,
    "augment.flip": 0.0,
    "segmentation.long_side": 32,
    "segmentation.short_side": 32,
    "segmentation.min_scale": 1.0,
    "segmentation.max_scale": 1.0,
    "segmentation.photometric": False,
    "segmentation.channels": 32,
    "optim.batch_size": 8,
    "optim.base_lr": 0.64,
    "optim.warmup_updates": 2,
    "run.eval_updates": 4,
    "run.save_every": 0,
    "run.mixed_precision": "no",
    "run.device": "cpu",
    "run.threads": 1,
}


def small_segmentation(data: Path, out: Path, **changes: Any) -> Config:
    """The recipe `ade20k-vim-tiny` made small, for the shapes in `data`; see `small.small` for the names of changes."""
    named = {name.replace("__", "."): value for name, value in changes.items()}
    return load_recipe("ade20k-vim-tiny", {**SETTINGS, "data.path": str(data), "out": str(out), **named})
