"""Every task, once: whoever needs to know which there are, or what belongs to one, asks `TASKS`.

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
    """Makes a `Task` of a config. It has `metrics`, what is measured, of which the first, `primary`, picks the best."""
    evaluation_of: Callable[..., Evaluation]
    """How a model is measured, given images, the settings of the data and its own."""
    data: Mapping[str, DataSet]
    """The data that it can learn from, by name."""
    default_data: str
    """What a checkpoint is measured on that does not say what it was trained on."""
    batch_size: int
    """Images that `tustin eval` loads together."""
    data_at_path: str | None = None
    """What a path alone means to `tustin eval`; if nothing is said here, data as those of the training."""
    settings: type | None = None
    """Settings of its own, which a config has under its name."""
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
        """Its own among the settings in a checkpoint, by their dotted names; the file may come from a stranger."""
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
DATA_SETS = {name: data for kind in TASKS.values() for name, data in kind.data.items()}
"""The data of all tasks; no two share a name."""
