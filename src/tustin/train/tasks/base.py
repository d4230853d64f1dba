"""The parts of a task: what the training loop needs, its datasets, and how a model is evaluated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeAlias

import torch
from accelerate.utils import send_to_device
from torch import Tensor, nn

from ...data.batches import Batch, BatchSource, evaluation_batches
from ...models import Diagnosis, NotDownloaded, create_model, load_checkpoint, model_names
from ...support.names import unknown
from ...support.ranges import Range
from ..metrics import Gather, Meter, Metric

if TYPE_CHECKING:  # the settings know the tasks, not the other way round
    from ..config import Config, DataConfig

__all__ = ["DataSet", "Evaluation", "Scale", "Task", "backbone_of", "open_data"]

Scale: TypeAlias = Annotated[float, Range(0, 100, above=True)]


class Task(Protocol):
    """The dataset, model, loss and evaluation of a run."""

    @property
    def primary(self) -> Metric:
        """The metric that selects the best epoch."""

    @property
    def model(self) -> nn.Module: ...

    @property
    def train_data(self) -> BatchSource: ...

    @property
    def evaluation(self) -> Evaluation: ...

    def notes(self) -> Iterable[str]:
        """Lines about the data, to print before the training begins."""

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """The parts of the mean loss of a batch, by name. Their sum is the loss.

        `model` is the model of the task, or a wrapper of it. If there are several parts, a run records each of them.
        """

    def diagnose(self, model: nn.Module, batch: Batch) -> Diagnosis:
        """The first tensor of the model that is not finite on this batch, and whether its steps are stable."""

    def save(self, model: nn.Module, path: Path, metadata: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True)
class Evaluation:
    """How a model is evaluated: the held-out data, the prediction, and the meter that computes the metrics."""

    data: BatchSource
    classes: list[str]
    predict: Callable[[Any, Batch], Any]
    """Computes the prediction of a model for a batch, which the meter then reads."""
    meter: Callable[[], Meter]

    def run(
        self,
        model: nn.Module,
        device: torch.device,
        batch_size: int,
        workers: int = 0,
        process: int = 0,
        processes: int = 1,
        gather: Gather = list,
    ) -> tuple[dict[str, Any], int]:
        """The metrics of a model in evaluation mode, and the number of samples that this process has seen."""
        meter, samples = self.meter(), 0
        with torch.no_grad():
            for batch in evaluation_batches(self.data, batch_size, process, processes, workers):
                batch = send_to_device(batch, device)
                meter.update(self.predict(model, batch), batch)
                samples += len(batch["images"])
        return meter.result(gather), samples


@dataclass(frozen=True)
class DataSet:
    """A dataset and the settings that it reads; any other setting is an error, because it would have no effect."""

    open: Callable[[DataConfig, bool], Any]
    """Opens the training images (True) or the held-out images (False), given the settings `data.*`."""
    settings: set[str]
    """Names of the settings `data.*` that it reads."""
    augment: set[str]
    """Names of the settings `augment.*` that it reads."""
    at_path: str | None = None
    """What `data.path` must point to, in words; None if it needs no path."""


def open_data(task: str, known: Mapping[str, DataSet], data: DataConfig, training: bool) -> Any:
    """One half of the data that the settings name, which must be among those that the task can use."""
    if data.name not in known:
        *others, last = known
        names = f"{', '.join(others)} or {last}" if others else last
        raise ValueError(f"{task} needs data.name {names}, got {data.name!r}")
    kind = known[data.name]
    if kind.at_path and data.path is None:
        raise ValueError(f"data.path is missing: --data.path must say where {kind.at_path}")
    images = kind.open(data, training)
    if data.num_classes not in (None, len(images.classes)):
        where = data.name if data.path is None else repr(data.path)
        raise ValueError(f"{where} has {len(images.classes)} classes, data.num_classes is {data.num_classes}")
    return images


def backbone_of(config: Config, num_classes: int) -> Any:
    """The Vision Mamba of the settings, with the weights they name, and a head for so many classes or, for 0, none."""
    settings = config.model
    if settings.name not in model_names():  # others in timm's registry have no discretization
        raise ValueError(unknown("model", settings.name, model_names()))
    arguments = {"num_classes": num_classes, "discretization": settings.discretization, **settings.args}
    if settings.img_size is not None:
        arguments["img_size"] = settings.img_size
    if settings.drop_path_rate:
        arguments["drop_path_rate"] = settings.drop_path_rate
    torch.manual_seed(config.seed)
    model = create_model(settings.name, **arguments)
    if settings.weights is not None:
        try:
            load_checkpoint(model, settings.weights, allow_other_discretization=settings.allow_other_discretization)
        except NotDownloaded as error:
            raise NotDownloaded(f"{error}, or start from random weights with --model.weights null") from error
    return model
