"""What is measured: names, units and directions in one place, and the meters that add it up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

Gather: TypeAlias = Callable[[list[Any]], list[Any]]
"""The lists of all processes, joined."""


@dataclass(frozen=True)
class Metric:
    """A number that a run reports: its name, title and unit, and whether higher is better."""

    name: str
    title: str
    unit: str
    higher_is_better: bool

    def better(self, value: float, than: float | None) -> bool:
        if than is None:
            return True
        return value > than if self.higher_is_better else value < than


METRICS = {
    metric.name: metric
    for metric in (
        Metric("top1", "top-1 accuracy", "%", True),
        Metric("top5", "top-5 accuracy", "%", True),
        Metric("miou", "mean IoU", "%", True),
        Metric("pixel_accuracy", "pixel accuracy", "%", True),
        Metric("box_ap75", "box AP at IoU 0.75", "%", True),
        Metric("box_ap", "box AP", "%", True),
        Metric("box_ap50", "box AP at IoU 0.5", "%", True),
        Metric("mask_ap75", "mask AP at IoU 0.75", "%", True),
        Metric("mask_ap", "mask AP", "%", True),
        Metric("mask_ap50", "mask AP at IoU 0.5", "%", True),
        Metric("proposal_recall", "recall of proposals at IoU 0.5", "%", True),
        Metric("loss", "validation loss", "", False),
        Metric("train_loss", "training loss", "", False),
        Metric("samples_per_second", "training throughput", "images/s", True),
        Metric("train_seconds", "training time", "s", False),
    )
}
"""Every metric of a run, by name."""


class Meter(Protocol):
    """Takes the evaluation batch by batch, then says what came out of it."""

    def update(self, output: Any, batch: dict[str, Any]) -> None: ...

    def result(self, gather: Gather) -> dict[str, Any]:
        """The metrics by name, and whatever else is worth a place in the record, as plain values."""
