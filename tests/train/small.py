"""A run that takes a second: digits, one narrow block, five updates an epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tustin.train import Config, load_recipe

SMALL: dict[str, Any] = {
    "epochs": 2,
    "model.args": {"embed_dim": 16, "depth": 1, "d_state": 4},
    "optim.batch_size": 256,
    "optim.warmup_epochs": 1,
    "run.threads": 1,
    "run.device": "cpu",
}


def small(out: Path, **changes: Any) -> Config:
    """The recipe `digits` made small; a change's name has two underscores where a setting's has a dot."""
    named = {name.replace("__", "."): value for name, value in changes.items()}
    return load_recipe("digits", {**SMALL, "out": str(out), **named})


def weights(folder: Path, name: str = "last") -> bytes:
    """The file, in which equal models are equal bytes but for the metadata before the tensors."""
    from safetensors import safe_open

    with safe_open(folder / f"{name}.safetensors", "pt") as file:
        return b"".join(key.encode() + file.get_tensor(key).numpy().tobytes() for key in sorted(file.keys()))
