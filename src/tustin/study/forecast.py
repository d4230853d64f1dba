"""What a study could show, and how long it would take here, before any of its runs."""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from ..data.batches import evaluation_batches, training_batches
from ..report.terminal import duration
from ..train import METRICS, TASKS, Config
from ..train.engine import Trainer
from ..train.folder import RunFolder
from .plan import config_of
from .results import Plan
from .signflips import POWER, detectable_gain, equal_band, holm, smallest_p
from .wording import difference_unit, digits

__all__ = ["Forecast", "RunTime", "forecast", "lines", "time_run"]

WARM_UP = 2
MOST_UPDATES = 10
MOST_SECONDS = 10.0
BATCHES_TO_EVALUATE = 3


@dataclass(frozen=True)
class RunTime:
    """Seconds of one run, guessed from a few updates and batches of evaluation."""

    update_seconds: float
    updates: int
    evaluation_seconds: float
    evaluations: int

    @property
    def seconds(self) -> float:
        return self.update_seconds * self.updates + self.evaluation_seconds * self.evaluations


@dataclass(frozen=True)
class Forecast:
    """All that is told."""

    runs: int
    pairs: int
    compared: int
    """Rules beside the baseline, over which p-values are corrected."""
    smallest_p: float
    """The smallest corrected p-value that can come out."""
    std: float
    """Of the paired differences; 1 where none was given."""
    detectable: float | None
    """The gain that would be shown with a probability of `POWER`."""
    band: float | None
    """The threshold within which equal rules would be called equal with that probability."""
    seconds: float | None
    """Of the whole study, with so many runs at a time."""
    jobs: int


def forecast(plan: Plan, std: float | None, times: dict[str, RunTime], jobs: int) -> Forecast:
    """From the plan, the spread and the times of the baseline's and the control's run."""
    pairs, compared = len(plan.seeds), len(plan.discretizations) - 1
    level, spread = plan.level / max(1, compared), 1.0 if std is None else std
    seconds = None
    if times:
        rules = len(plan.discretizations) * times[plan.baseline].seconds
        control = times[plan.control].seconds if plan.control else 0.0
        seconds = pairs * (rules + control) / jobs
    return Forecast(
        runs=len(plan.runs()),
        pairs=pairs,
        compared=compared,
        smallest_p=max(holm([smallest_p(pairs)] * compared), default=1.0),
        std=spread,
        detectable=detectable_gain(spread, pairs, level) if compared else None,
        band=equal_band(spread, pairs, level) if compared else None,
        seconds=seconds,
        jobs=jobs,
    )


def time_run(plan: Plan, config: Config, folder: Path, method: str) -> RunTime:
    """Time a few updates of a run, and a few batches of its evaluation; nothing of it is kept but decoded images."""
    config = config_of(plan, config, folder, method, plan.seeds[0])
    AcceleratorState._reset_state()
    cpu = config.run.device == "cpu" or not torch.accelerator.is_available()
    accelerator = Accelerator(cpu=cpu, mixed_precision=config.run.mixed_precision)
    threads = torch.get_num_threads()
    torch.set_num_threads(plan.threads)
    try:
        with tempfile.TemporaryDirectory() as out:
            task = TASKS[config.task].make(config)
            trainer = Trainer(config, task, accelerator, RunFolder(out))
            updates = _seconds_of_updates(trainer)
            evaluations, seconds = _evaluations(trainer), _seconds_of_evaluation(trainer)
    finally:
        torch.set_num_threads(threads)
    return RunTime(updates, trainer.updates, seconds, evaluations)


def _seconds_of_updates(trainer: Trainer) -> float:
    accumulate = trainer.config.optim.accumulate
    stop = min(trainer.updates, WARM_UP + MOST_UPDATES)
    batches = training_batches(trainer.task.train_data, trainer.order, 0, stop, accumulate=accumulate)
    times: list[float] = []
    for _ in range(stop):
        begin = time.perf_counter()
        trainer.update(batches)
        times.append(time.perf_counter() - begin)
        if len(times) > WARM_UP and sum(times) > MOST_SECONDS:
            break
    return statistics.median(times[WARM_UP:] or times)


def _evaluations(trainer: Trainer) -> int:
    run, updates = trainer.config.run, trainer.updates
    if run.eval_updates:
        return math.ceil(updates / run.eval_updates)
    return math.ceil(updates / trainer.order.batches / run.eval_every)


def _seconds_of_evaluation(trainer: Trainer) -> float:
    """Of all held-out samples, from the first few batches."""
    evaluation, size = trainer.task.evaluation, trainer.config.run.eval_batch_size or trainer.batch_of_a_pass()
    device, model = trainer.accelerator.device, trainer.plain_model.eval()
    begin, seen = time.perf_counter(), 0
    with torch.no_grad():
        for batch in islice(evaluation_batches(evaluation.data, size), BATCHES_TO_EVALUATE):
            evaluation.predict(model, {name: _to(value, device) for name, value in batch.items()})
            seen += len(batch["images"])
    return (time.perf_counter() - begin) / seen * len(evaluation.data)


def _to(value: Any, device: torch.device) -> Any:
    return value.to(device) if isinstance(value, torch.Tensor) else value


# --- words ------------------------------------------------------------------------------------------------------------


def facts(found: Forecast, times: dict[str, RunTime]) -> dict[str, Any]:
    """As plain data."""
    return {**asdict(found), "run": {name: asdict(told) | {"seconds": told.seconds} for name, told in times.items()}}


def lines(plan: Plan, found: Forecast, std_given: bool, times: dict[str, RunTime]) -> list[str]:
    """The forecast for a person."""
    metric = METRICS[plan.metric]
    unit = (difference_unit(metric) if std_given else "standard deviations of the paired differences") or metric.title
    decimals = digits(metric)
    control = f" and {plan.control}" if plan.control else ""
    told = [f"{plan.recipe}: {', '.join(plan.discretizations)}{control}, {found.pairs} seeds, {found.runs} runs"]
    if found.detectable is None or found.band is None:
        least = f"{found.smallest_p:.2g}" if found.compared else ""
        why = f"p would be {least} at best, above the level of {plan.level:g}; more seeds are needed"
        told.append(
            f"no difference can be shown: {why}" if found.compared else "one rule has nothing to be compared with"
        )
    else:
        told += [
            f"a gain of {found.detectable:.{decimals}f} {unit} would be shown with a probability of {POWER:.0%}",
            f"equal rules would be called equal within ±{found.band:.{decimals}f} {unit} with the same probability"
            + (f"; the threshold is {plan.threshold:g}" if std_given else ""),
        ]
    for name, run in times.items():
        told.append(
            f"a run of {name}: about {duration(run.seconds)}, {run.updates} updates of "
            f"{1000 * run.update_seconds:.0f} ms and {run.evaluations} evaluations of {run.evaluation_seconds:.1f} s"
        )
    if found.seconds is not None:
        told.append(
            f"the study: about {duration(found.seconds)} with {found.jobs} at a time, at this machine's current speed"
        )
    return told
