"""The overhead of training: the time of loading data and of the training loop, as shares of an update.

    python benchmarks/training.py [--discretizations zoh,bil] [--rounds 5] [--json training.json]

ViM-tiny at 32 px with patches of 16, batch 128, images in memory, the augmentation of the recipe cifar100. Three things
are timed alternately: the training loop; forward, backward and optimizer alone, on a loaded batch; and the loading of
a batch alone. The share of data and loop is the difference of the first two.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator

from tustin.bench import machine
from tustin.bench.measure import Plan, Process, measure, side_by_side
from tustin.bench.worker import MAKERS
from tustin.data import Images, training_batches
from tustin.report import terminal
from tustin.report.formats import json_text
from tustin.report.measurement import Case, Options
from tustin.report.timing import round_ratio
from tustin.support.files import write_text
from tustin.train import TASKS, RunFolder, Trainer, load_recipe
from tustin.train.tasks.classification import DATA

BATCH = 128
STEPS = ("engine", "model", "data")


@dataclass(frozen=True)
class UpdateCase(Case, kind="update"):
    """One update with a rule, or a part of one."""

    discretization: str
    step: str

    @property
    def work(self) -> UpdateCase:
        return replace(self, step="")


def random_images(training: bool) -> Images:
    """As many images as fill ten batches: their pixels do not change the time."""
    pixels = np.random.default_rng(0).integers(0, 256, (10 * BATCH, 32, 32, 3), dtype=np.uint8)
    labels = [i % 100 for i in range(len(pixels))]
    return Images(list(pixels), labels, [str(i) for i in range(100)], training)


@functools.cache
def steps(discretization: str) -> dict[str, Callable[[], object]]:
    """A call of each step; all share the model and its optimizer."""
    DATA["cifar100"] = replace(DATA["cifar100"], open=lambda data, training: random_images(training), at_path=None)
    folder = tempfile.TemporaryDirectory()
    changes = {"optim.batch_size": BATCH, "model.discretization": discretization, "out": folder.name}
    config = load_recipe("cifar100", {**changes, "augment.repeats": 1})
    trainer = Trainer(config, TASKS["classification"].make(config), Accelerator(cpu=True), RunFolder(folder.name))
    batches, alone = (training_batches(trainer.task.train_data, trainer.order, 0, 10**6) for _ in range(2))
    kept = {name: part.clone() if isinstance(part, torch.Tensor) else part for name, part in next(alone).items()}

    def model() -> None:
        torch.nn.functional.cross_entropy(trainer.model(kept["images"]), kept["labels"]).backward()
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()

    return dict(zip(STEPS, (lambda: trainer.update(batches), model, lambda: (folder, next(alone))), strict=True))


MAKERS["update"] = lambda case: steps(case.discretization)[case.step]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--discretizations", default="zoh,foh,bil,pol,hoh,rk4", help="with commas between them")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    args = parser.parse_args()
    options = Options(threads=torch.get_num_threads(), discretizations=tuple(args.discretizations.split(",")))
    cases = [UpdateCase(rule, step, threads=options.threads) for rule in options.discretizations for step in STEPS]
    plan = Plan(cases, lambda case: Process(str(case.work)), args.rounds, side_by_side(seconds=3.0))
    facts = machine.describe("cpu", "timm")
    with terminal.progress("training") as show:
        command = f"python benchmarks/training.py --discretizations {args.discretizations} --rounds {args.rounds}"
        result = measure(plan, show).result("training", command, options, facts)
    for rule in options.discretizations:
        engine, model, data = (result.timings[case] for case in cases if case.discretization == rule)
        share = round_ratio(model, engine)
        low, high = 1 - max(share.values), 1 - min(share.values)
        middle = zip(STEPS, (engine, model, data), strict=True)
        times = ", ".join(f"{step} {1e3 * timing.median:.0f} ms" for step, timing in middle)
        overhead = f"data and loop {1 - share.median:.1%} of an update (rounds {low:.1%} to {high:.1%})"
        print(f"{rule:5} {BATCH / engine.median:7.1f} images/s; {times}; {overhead}")
    if args.json:
        write_text(args.json, json_text(result.facts()))


if __name__ == "__main__":
    main()
