"""Training: one engine, settings as documented dataclasses, recipes as YAML.

from tustin.train import load_recipe, train

summary = train(load_recipe("digits", {"model.discretization": "zoh", "seed": 3}))
"""

from ..support.signals import Interrupted
from .config import Config
from .display import Display
from .engine import Diverged, Trainer, evaluate
from .folder import RunFolder
from .metrics import METRICS, Metric
from .run import train
from .settings import load_recipe, recipes
from .task import Task

__all__ = [
    "METRICS",
    "Config",
    "Display",
    "Diverged",
    "Interrupted",
    "Metric",
    "RunFolder",
    "Task",
    "Trainer",
    "evaluate",
    "load_recipe",
    "recipes",
    "train",
]
