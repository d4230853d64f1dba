"""Studies with made-up results, so that what must come out of them is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tustin.study import Plan, Result, Study
from tustin.study.results import PLAN, result_path

ENVIRONMENT = {
    "versions": {"tustin": "0.1.0", "torch": "2.15.0"},
    "commit": "0" * 40,
    "platform": "Linux",
    "cpu": {"model": "A processor", "cores": 2},
    "gpus": [],
    "device": "cpu",
    "backend": "native",
    "threads": 1,
}
PAPER_DISCRETIZATIONS = ("zoh", "foh", "bil", "pol", "hoh", "rk4")
OFFSETS = {"zoh": 0.0, "foh": -0.9, "bil": 1.1, "pol": 0.3, "hoh": 1.9, "rk4": 0.05, "no_state": -6.0}
SPEEDS = {"zoh": 820.0, "foh": 800.0, "bil": 900.0, "pol": 760.0, "hoh": 740.0, "rk4": 700.0}
EPOCHS = 12
SIZES = {
    "parameters": 45_678,
    "training_samples": 1_437,
    "held_out_samples": 360,
    "classes": 10,
    "updates": 11 * EPOCHS,
    "updates_per_epoch": 11,
}


def plan(discretizations: Sequence[str] = PAPER_DISCRETIZATIONS, seeds: int = 10, **changes: Any) -> Plan:
    complete = Plan(
        recipe="digits",
        discretizations=list(discretizations),
        seeds=list(range(seeds)),
        baseline="zoh",
        metric="top1",
        level=0.05,
        threshold=0.7,
        settings={"epochs": EPOCHS},
        threads=1,
        config={"epochs": EPOCHS, "model.name": "vim_nano_patch4_stride2_8", "optim.base_lr": 0.04, "data.path": None},
        environment=ENVIRONMENT,
    )
    return replace(complete, **changes)


def accuracy(discretization: str, seed: int) -> float:
    """The seed moves all rules together, and each of them a little by itself."""
    shared = np.random.default_rng(seed).normal(0, 0.5)
    own = np.random.default_rng([seed, *discretization.encode()]).normal(0, 0.12)
    return float(95 + OFFSETS.get(discretization, 0.0) + shared + own)


def done(discretization: str, seed: int, value: float | None = None, metric: str = "top1") -> Result:
    """A run that ended well, with `value` at its best epoch."""
    value = accuracy(discretization, seed) if value is None else value
    curve = [
        {
            "epoch": epoch,
            "updates": 11 * epoch,
            "train_loss": 2.0 / epoch,
            "samples_per_second": 800.0,
            "train_seconds": 0.7 * epoch,
            metric: value - 30 / epoch + 30 / (EPOCHS - 1) if epoch < EPOCHS else value - 0.1,
        }
        for epoch in range(1, EPOCHS + 1)
    ]
    companions = {"top5": 99.5 + 0.01 * seed, "loss": 2 - value / 100} if metric == "top1" else {}
    speed = SPEEDS.get(discretization, 800.0) * (1 + 0.01 * (seed % 3))
    return Result(
        discretization,
        seed,
        "done",
        metrics={metric: value, **companions},
        best_epoch=EPOCHS - 1,
        best_update=11 * (EPOCHS - 1),
        train_seconds=7000 / speed * (1 + 0.3 * ((seed + len(discretization)) % 2)),  # other programs run as well
        cpu_seconds=6900 / speed,
        samples_per_second=speed,
        sizes=SIZES,
        curve=curve,
        environment=ENVIRONMENT,
    )


def failed(discretization: str, seed: int) -> Result:
    """A run that diverged in its second epoch."""
    return Result(
        discretization,
        seed,
        "failed",
        error="the loss is nan at update 14 (epoch 2)",
        diagnosis={
            "discretization": discretization,
            "stable": [-2.785, 0.0],
            "first_non_finite": {
                "layer": "layers.0.mixer",
                "tensor": "y (backward)",
                "count": 3,
                "total": 640,
                "first_value": "nan",
                "first_index": [0, 1, 2],
            },
            "layers": [
                {"layer": "layers.0.mixer", "direction": "forward", "z_range": [-1.5, -0.001], "unstable": 0.0},
                {"layer": "layers.0.mixer", "direction": "backward", "z_range": [-11.3, -0.6], "unstable": 0.42},
            ],
            "healthy": False,
        },
        curve=done(discretization, seed).curve[:1],
        environment=ENVIRONMENT,
    )


def study(of: Plan | None = None, run: Callable[[str, int], Result | None] = done) -> Study:
    """Every run of the plan as `run` makes it; None is a run that is missing."""
    of = of or plan()
    results = {key: run(*key) for key in of.runs()}
    return Study(
        of,
        [result for result in results.values() if result],
        [key for key, result in results.items() if not result],
    )


def with_gains(gains: Sequence[float], discretization: str = "bil", **changes: Any) -> Study:
    """Two rules, the second better than the baseline by `gains`, one a seed."""
    base = plan(("zoh", discretization), len(gains), **changes)
    metric = base.metric
    return study(
        base,
        lambda name, seed: done(
            name, seed, 50.0 + seed + (gains[seed] if name == discretization else 0.0), metric=metric
        ),
    )


def write(folder: Path, study: Study) -> Path:
    """The folder of a study, as its runner writes it."""
    (folder / "results").mkdir(parents=True)
    study.plan.write(folder / PLAN)
    for result in study.results:
        result.write(result_path(folder, result.discretization, result.seed))
    return folder


def interrupted(discretization: str, seed: int) -> Result | None:
    """A study stopped on its way, in which one rule diverges now and then."""
    if discretization == "rk4_raw" and seed in (1, 4):
        return failed(discretization, seed)
    return None if seed == 9 and discretization != "zoh" else done(discretization, seed)


STUDIES: dict[str, Study] = {
    "complete": study(plan(control="no_state")),
    "interrupted": study(plan(("zoh", "bil", "rk4_raw")), interrupted),
    "one seed": study(plan(seeds=1)),
    "one discretization": study(plan(("zoh",))),
    "one run": study(plan(("bil",), 1)),
    "nothing yet": study(run=lambda discretization, seed: None),
    "all failed": study(plan(("zoh", "rk4_raw"), 3), failed),
    "no baseline": study(plan(("bil", "pol"), 3)),
    "equal": with_gains([0.0] * 6),
    "equal, but empty": study(
        plan(("zoh", "rk4"), control="no_state"),
        lambda name, seed: done(name, seed, 50.0 + seed % 3 + {"zoh": 0.0, "rk4": 0.02 * seed - 0.1}.get(name, -1.2)),
    ),
    "as in the paper": study(plan(recipe="cifar100")),
    "segmentation": with_gains([1.0, 2.0, 1.5, 2.5, 3.0], metric="miou", recipe="ade20k-vim-tiny"),
    "detection": with_gains([1.0, 2.0, 1.5, 2.5, 3.0], metric="box_ap75", recipe="coco-vim-tiny"),
    "lower is better": with_gains([-0.1, -0.2, -0.15, -0.2, -0.3], metric="loss", threshold=0.05),
}
