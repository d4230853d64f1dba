"""Training: one engine, settings as documented dataclasses, recipes as YAML.

from tustin.train import load, train

summary = train(load("digits", {"model.discretization": "zoh", "seed": 3}))
"""

from typing import TYPE_CHECKING

from ..support.imports import lazy_names

__all__ = [
    "METRICS",
    "Config",
    "Display",
    "Diverged",
    "Metric",
    "RunFolder",
    "Task",
    "Trainer",
    "evaluate",
    "load",
    "recipes",
    "train",
]

if TYPE_CHECKING:
    from .config import Config
    from .display import Display
    from .engine import Diverged, Trainer, evaluate
    from .folder import RunFolder
    from .metrics import METRICS, Metric
    from .recipe import recipes
    from .run import train
    from .settings import load
    from .task import Task
else:  # the recipes can be read without torch
    __getattr__ = lazy_names(
        __name__,
        {
            ".config": ("Config",),
            ".display": ("Display",),
            ".engine": ("Diverged", "Trainer", "evaluate"),
            ".folder": ("RunFolder",),
            ".metrics": ("METRICS", "Metric"),
            ".recipe": ("recipes",),
            ".run": ("train",),
            ".settings": ("load",),
            ".task": ("Task",),
        },
    )
