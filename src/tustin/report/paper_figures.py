"""The paper's own results, to stand beside ours: its code, its hardware, its numbers.

"Beyond ZOH: Advanced Discretization Strategies for Vision Mamba", arXiv 2604.20606: its tables and the section on
statistical significance. docs/paper.md says what to keep in mind when reading them.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "FASTEST",
    "PAPER",
    "SCENARIOS",
    "SOURCE",
    "PaperGain",
    "PaperResults",
    "PaperRow",
    "PaperScenario",
    "PaperSpeed",
]

SOURCE = "arXiv 2604.20606"


@dataclass(frozen=True)
class PaperRow:
    """One rule: one run, unless the paper says otherwise; a spread is not printed."""

    metrics: dict[str, float]
    best_epoch: int | None = None
    training_time: str | None = None
    """Days-hours:minutes, as printed."""


@dataclass(frozen=True)
class PaperGain:
    """A rule against ZOH over ten seeds, as the text tells it."""

    gain: float
    p: str
    throughput: float | None = None
    """Change in percent."""


@dataclass(frozen=True)
class PaperResults:
    """What the paper prints for the settings of a recipe."""

    where: str
    hardware: str
    rows: dict[str, PaperRow]
    gains: dict[str, PaperGain] | None = None
    remark: str = ""


_HARDWARE = "four A100 GPUs"

_IMAGENET = PaperResults(
    "Table 1, ImageNet-1k",
    _HARDWARE,
    {
        "zoh": PaperRow({"top1": 71.12, "top5": 86.71}, 227, "22-11:36"),
        "foh": PaperRow({"top1": 71.14, "top5": 86.49}, 226, "22-11:36"),
        "bil": PaperRow({"top1": 71.95, "top5": 90.75}, 232, "22-18:27"),
        "pol": PaperRow({"top1": 72.76, "top5": 91.21}, 272, "23-16:31"),
        "hoh": PaperRow({"top1": 72.74, "top5": 91.20}, 289, "23-21:51"),
        "rk4": PaperRow({"top1": 71.63, "top5": 90.10}, 298, "28-06:22"),
    },
)

_CIFAR100 = PaperResults(
    "Table 1, CIFAR-100, and its section on statistical significance",
    _HARDWARE,
    {
        "zoh": PaperRow({"top1": 43.84, "top5": 71.23}, 225, "0-01:29"),
        "foh": PaperRow({"top1": 43.08, "top5": 70.43}, 227, "0-01:08"),
        "bil": PaperRow({"top1": 44.69, "top5": 71.44}, 230, "0-01:28"),
        "pol": PaperRow({"top1": 45.87, "top5": 72.23}, 271, "0-01:38"),
        "hoh": PaperRow({"top1": 46.16, "top5": 72.53}, 281, "0-01:38"),
        "rk4": PaperRow({"top1": 44.27, "top5": 71.09}, 290, "0-01:47"),
    },
    {
        "foh": PaperGain(0.48, "0.97"),
        "bil": PaperGain(1.09, "< 0.001", -2.77),
        "pol": PaperGain(2.33, "< 0.001", -9.13),
        "hoh": PaperGain(2.66, "< 0.001", -11.23),
        "rk4": PaperGain(0.68, "< 0.001"),
    },
    "A gain of foh with p = 0.97 is impossible in a one-sided test for improvement; its sign is probably a typo.",
)

_ADE20K = PaperResults(
    "Table 2, ADE20K with UperNet",
    _HARDWARE,
    {
        discretization: PaperRow({"miou": miou})
        for discretization, miou in (
            ("zoh", 41.0),
            ("foh", 40.2),
            ("bil", 43.9),
            ("pol", 45.4),
            ("hoh", 45.2),
            ("rk4", 44.1),
        )
    },
)

_COCO = PaperResults(
    "Table 2, COCO 2017 with Cascade Mask R-CNN",
    _HARDWARE,
    {
        discretization: PaperRow({"box_ap75": ap})
        for discretization, ap in (
            ("zoh", 49.6),
            ("foh", 49.4),
            ("bil", 52.1),
            ("pol", 53.2),
            ("hoh", 54.1),
            ("rk4", 52.0),
        )
    },
)

PAPER = {
    "imagenet-vim-tiny": _IMAGENET,
    "cifar100": _CIFAR100,
    "ade20k-vim-tiny": _ADE20K,
    "coco-vim-tiny": _COCO,
}
"""By the name of the recipe that has the paper's settings."""


@dataclass(frozen=True)
class PaperSpeed:
    """The fastest rule at a batch size; spreads and the other rules' times are not printed."""

    discretization: str
    milliseconds_per_image: float
    images_per_second: float


FASTEST = {
    1: PaperSpeed("bil", 13.46, 74.28),
    4: PaperSpeed("pol", 3.39, 298.16),
    8: PaperSpeed("foh", 1.70, 587.08),
    16: PaperSpeed("foh", 0.86, 1164.25),
    32: PaperSpeed("pol", 0.48, 2193.21),
    64: PaperSpeed("zoh", 0.42, 2257.83),
    128: PaperSpeed("pol", 0.38, 2588.37),
    256: PaperSpeed("foh", 0.32, 3272.25),
    512: PaperSpeed("bil", 0.21, 4804.37),
}
"""Inference of ViM-tiny by batch size."""


@dataclass(frozen=True)
class PaperScenario:
    """The rule that the paper recommends, and for what."""

    batch: int
    discretization: str
    performance: str
    improvement: str
    """Over ZOH."""


SCENARIOS = {
    "real-time": PaperScenario(1, "bil", "13.46 ms", "0.37 % faster"),
    "balanced": PaperScenario(32, "pol", "2193 images/s", "depends on the context"),
    "high throughput": PaperScenario(512, "bil", "4804 images/s", "0.67 % faster"),
}
