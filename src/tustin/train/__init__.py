"""Training: one engine, settings as documented dataclasses, recipes as YAML.

from tustin.train import load_recipe, train

summary = train(load_recipe("digits", {"model.discretization": "zoh", "seed": 3}))
"""

from typing import TYPE_CHECKING

from ..support.imports import lazy_names

__all__ = [
    "METRICS",
    "TASKS",
    "Config",
    "Display",
    "Diverged",
    "Evaluation",
    "Metric",
    "RunFolder",
    "Task",
    "Trainer",
    "evaluate_checkpoint",
    "load_recipe",
    "recipes",
    "train",
]

if TYPE_CHECKING:
    from .config import Config
    from .display import Display
    from .engine import Diverged, Trainer
    from .evaluation import evaluate_checkpoint
    from .folder import RunFolder
    from .metrics import METRICS, Metric
    from .recipe import recipes
    from .run import train
    from .settings import load_recipe
    from .tasks import TASKS, Evaluation, Task
else:  # the recipes can be read without torch
    __getattr__ = lazy_names(
        __name__,
        {
            ".config": ("Config",),
            ".display": ("Display",),
            ".engine": ("Diverged", "Trainer"),
            ".evaluation": ("evaluate_checkpoint",),
            ".folder": ("RunFolder",),
            ".metrics": ("METRICS", "Metric"),
            ".recipe": ("recipes",),
            ".run": ("train",),
            ".settings": ("load_recipe",),
            ".tasks": ("TASKS", "Evaluation", "Task"),
        },
    )
