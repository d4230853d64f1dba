"""A run that takes seconds: coloured shapes of 64 pixels, and a narrow detector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tustin.train import Config, load_recipe

SMALL: dict[str, Any] = {
    "updates": 6,
    "model.img_size": 64,
    "model.args": {"patch_size": 8, "embed_dim": 16, "depth": 1, "d_state": 4},
    "detection.channels": 8,
    "detection.hidden": 16,
    "detection.proposals": 16,
    "detection.samples": 8,
    "optim.batch_size": 2,
    "optim.base_lr": 0.256,
    "optim.warmup_updates": 2,
    "run.eval_updates": 3,
    "run.threads": 1,
    "run.device": "cpu",
}


def small(data: Path, out: Path, **changes: Any) -> Config:
    """The recipe `coco-tiny-cpu` made small; a change's name has two underscores where a setting's has a dot."""
    named = {name.replace("__", "."): value for name, value in changes.items()}
    return load_recipe("coco-tiny-cpu", {**SMALL, "data.path": str(data), "out": str(out), **named})
