"""The registry of tasks, `TASKS`: which tasks there are, and what belongs to each.

A task is an entry here, the class of its models in `models` (a checkpoint says by its name whose it is), and in
`predict` what it tells of an image. A module of its own makes its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...support.ranges import check
from ..metrics import Metric
from . import classification, detection, segmentation
from .base import DataSet, Evaluation, Task, open_data

if TYPE_CHECKING:
    from ..config import Config, DataConfig

__all__ = ["DATA_SETS", "TASKS", "DataSet", "Evaluation", "Task", "TaskKind"]


@dataclass(frozen=True)
class TaskKind:
    """The parts of a task."""

    name: str
    task: type[Any]
    """Makes a `Task` from a config. Its `metrics` are measured; the first, `primary`, selects the best epoch."""
    evaluation_of: Callable[..., Evaluation]
    """Makes the `Evaluation` from images, the settings of the data and those of the task."""
    data: Mapping[str, DataSet]
    """The datasets of the task, by name."""
    default_data: str
    """The dataset for a checkpoint that does not name the one it was trained on."""
    batch_size: int
    """Batch size of `tustin eval`."""
    data_at_path: str | None = None
    """The kind of dataset that `tustin eval` expects at a path; None: that of the training."""
    settings: type | None = None
    """The class of the task's own settings; a config has them under the name of the task."""
    smooths_labels: bool = True

    @property
    def primary(self) -> Metric:
        """The metric that selects the best epoch."""
        metric: Metric = self.task.primary
        return metric

    def make(self, config: Config) -> Task:
        task: Task = self.task(config)
        return task

    def open_data(self, data: DataConfig, training: bool) -> Any:
        return open_data(self.name, self.data, data, training)

    def own_settings(self, trained_with: Mapping[str, Any]) -> Any:
        """The task's own settings, out of all settings in a checkpoint. They are checked: the file may be untrusted."""
        if self.settings is None:
            return None
        prefix = f"{self.name}."
        own = {name.removeprefix(prefix): value for name, value in trained_with.items() if name.startswith(prefix)}
        check(self.settings, own, prefix)
        return self.settings(**own)


TASKS = {
    kind.name: kind
    for kind in (
        TaskKind(
            classification.NAME,
            classification.Classification,
            classification.evaluation_of,
            classification.DATA,
            default_data="folder",
            batch_size=128,
            data_at_path="folder",
        ),
        TaskKind(
            segmentation.NAME,
            segmentation.Segmentation,
            segmentation.evaluation_of,
            segmentation.DATA,
            default_data="masks",
            batch_size=8,
            settings=segmentation.SegmentationConfig,
        ),
        TaskKind(
            detection.NAME,
            detection.Detection,
            detection.evaluation_of,
            detection.DATA,
            default_data="coco",
            batch_size=8,
            settings=detection.DetectionConfig,
            smooths_labels=False,
        ),
    )
}
"""Every task, by name."""
DATA_SETS = {name: data for kind in TASKS.values() for name, data in kind.data.items()}
"""The datasets of all tasks, by their unique names."""
