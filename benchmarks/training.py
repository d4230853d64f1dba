"""What training costs beside the model: loading data and running the engine, as shares of an update.

    python benchmarks/training.py [--discretizations zoh,bil] [--rounds 5] [--json training.json]

ViM-tiny at 32 px with patches of 16, batch 128, images in memory, the augmentation of the recipe cifar100. Three things
are timed in turns: the engine as it trains; forward, backward and optimizer alone on a batch at hand; and the loading
of a batch alone. The share of data and engine is what the first takes beyond the second.
"""

from __future__ import annotations

import argparse
import functools
import statistics
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


@functools.cache
def steps(discretization: str) -> dict[str, Callable[[], object]]:
    """A call of each step; all share the model and its optimizer, and random images that fill ten batches."""
    pixels = np.random.default_rng(0).integers(0, 256, (10 * BATCH, 32, 32, 3), dtype=np.uint8)
    labels, names = [i % 100 for i in range(len(pixels))], [str(i) for i in range(100)]
    images = functools.partial(Images, list(pixels), labels, names)
    DATA["cifar100"] = replace(DATA["cifar100"], open=lambda data, training: images(training), at_path=None)
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
    command = f"python benchmarks/training.py --discretizations {args.discretizations} --rounds {args.rounds}"
    facts = machine.describe("cpu", "timm")
    with terminal.progress("training") as show:
        result = measure(plan, show).result("training", command, options, facts)
    for rule in options.discretizations:
        timings = [result.timings[case] for case in cases if case.discretization == rule]
        shares = [1 - value for value in round_ratio(timings[1], timings[0]).values]
        times = ", ".join(f"{step} {1e3 * timing.median:.0f} ms" for step, timing in zip(STEPS, timings, strict=True))
        rounds = f"rounds {min(shares):.1%} to {max(shares):.1%}"
        overhead = f"data and loop {statistics.median(shares):.1%} of an update ({rounds})"
        print(f"{rule:5} {BATCH / timings[0].median:7.1f} images/s; {times}; {overhead}")
    if args.json:
        write_text(args.json, json_text(result.facts()))


if __name__ == "__main__":
    main()
