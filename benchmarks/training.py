"""What training costs beside the model: loading data and running the engine, as shares of an update.

    python benchmarks/training.py [--updates 20] [--rounds 5] [--json training.json]

ViM-tiny at 32 px with patches of 16, batch 128, images in memory, the augmentation of the recipe cifar100. Three things
are timed in turns, the same number of updates each: the engine as it trains; forward, backward and optimizer alone on a
batch at hand; and the loading of the batches alone. The share of data and engine is what the first takes beyond the
second.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator

from tustin.bench.worker import in_laps, time_once
from tustin.data import Images, training_batches
from tustin.doctor import collect
from tustin.support.files import write_text
from tustin.train import TASKS, Config, RunFolder, Trainer, load_recipe
from tustin.train.tasks.classification import DATA

BATCH = 128


def random_images(training: bool) -> Images:
    """As many images as fill ten batches: their pixels do not change the time."""
    pixels = np.random.default_rng(0).integers(0, 256, (10 * BATCH, 32, 32, 3), dtype=np.uint8)
    labels = [i % 100 for i in range(len(pixels))]
    return Images(list(pixels), labels, [str(i) for i in range(100)], training)


def settings(discretization: str, workers: int, out: str) -> Config:
    changes = {"optim.batch_size": BATCH, "data.workers": workers, "model.discretization": discretization, "out": out}
    return load_recipe("cifar100", {**changes, "augment.repeats": 1})


def seconds_of_rounds(trainer: Trainer, config: Config, updates: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of one update, a number for each round."""
    stop = (1 + rounds) * updates
    batches = training_batches(trainer.task.train_data, trainer.order, 0, stop, workers=config.data.workers)
    alone = training_batches(trainer.task.train_data, trainer.order, 0, stop)
    kept = {name: part.clone() if isinstance(part, torch.Tensor) else part for name, part in next(alone).items()}

    def engine() -> None:
        trainer.update(batches)

    def model() -> None:
        images = kept["images"]
        torch.nn.functional.cross_entropy(trainer.model(images), kept["labels"]).backward()
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()

    def data() -> None:
        next(alone)

    steps = {"engine": engine, "model": model, "data": data}

    def turn(member: int) -> float:
        step = [*steps.values()][member]
        return time_once(lambda: [step() for _ in range(updates)]) / updates

    engine()  # warm
    return dict(zip(steps, in_laps(turn, [range(len(steps))], at_least=math.inf, most=rounds), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=10, help="updates a round (default: 10)")
    parser.add_argument("--discretizations", default="zoh,foh,bil,pol,hoh,rk4", help="with commas between them")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--workers", type=int, default=0, help="processes that load images (default: 0)")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    args = parser.parse_args()
    DATA["cifar100"] = replace(DATA["cifar100"], open=lambda data, training: random_images(training), at_path=None)
    results = []
    for discretization in args.discretizations.split(","):
        with tempfile.TemporaryDirectory() as out:
            config = settings(discretization, args.workers, out)
            task = TASKS["classification"].make(config)
            trainer = Trainer(config, task, Accelerator(cpu=True), RunFolder(out))
            found = seconds_of_rounds(trainer, config, args.updates, args.rounds)
        middle = {name: statistics.median(seconds) for name, seconds in found.items()}
        shares = [1 - model / engine for model, engine in zip(found["model"], found["engine"], strict=True)]
        result = {
            "discretization": discretization,
            "samples_per_second": BATCH / middle["engine"],
            "seconds": found,
            "data_and_engine_share": statistics.median(shares),
        }
        results.append(result)
        times = ", ".join(f"{name} {1e3 * value:.0f} ms" for name, value in middle.items())
        spread = f"rounds {min(shares):.1%} to {max(shares):.1%}"
        share = f"data and engine {statistics.median(shares):.1%} of an update ({spread})"
        print(f"{discretization:5} {BATCH / middle['engine']:7.1f} images/s; {times}; {share}", flush=True)
    if args.json:
        write_text(args.json, json.dumps({"machine": collect(), "results": results}, indent=2, default=str) + "\n")


if __name__ == "__main__":
    main()
