"""What the engine is told about what it trains."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn

from ..data.batches import Batch, BatchSource
from ..models import Diagnosis
from .metrics import Meter, Metric


class Task(Protocol):
    """Data, a model, a loss and metrics."""

    @property
    def primary(self) -> Metric:
        """The metric that picks the best epoch."""

    @property
    def model(self) -> nn.Module: ...

    @property
    def train_data(self) -> BatchSource: ...

    @property
    def eval_data(self) -> BatchSource: ...

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The mean loss of a training batch; `model` is the task's, perhaps wrapped."""

    def predict(self, model: nn.Module, batch: Batch) -> Any:
        """What the meter takes."""

    def meter(self) -> Meter: ...

    def diagnose(self, model: nn.Module, batch: Batch) -> Diagnosis:
        """Where the model goes wrong on this batch, and whether its steps are stable."""

    def save(self, model: nn.Module, path: Path, metadata: Mapping[str, Any]) -> None: ...
