"""Training: one engine, settings as documented dataclasses, recipes as YAML.

from tustin.train import load_recipe, train

summary = train(load_recipe("digits", {"model.discretization": "zoh", "seed": 3}))
"""

from ..support.signals import Interrupted
from .config import Config
from .display import Display
from .engine import Diverged, Trainer
from .evaluation import evaluate_checkpoint
from .folder import RunFolder
from .metrics import METRICS, Metric
from .run import train
from .settings import load_recipe, recipes
from .tasks import TASKS, Evaluation, Task

__all__ = [
    "METRICS",
    "TASKS",
    "Config",
    "Display",
    "Diverged",
    "Evaluation",
    "Interrupted",
    "Metric",
    "RunFolder",
    "Task",
    "Trainer",
    "evaluate_checkpoint",
    "load_recipe",
    "recipes",
    "train",
]
