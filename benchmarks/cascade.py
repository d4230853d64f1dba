"""What the cascade adds to its first stage: box AP on coloured shapes, over several seeds.

    python benchmarks/cascade.py [--seeds 0,1,2] [--updates 300] [--json cascade.json]

For each seed a small detector is trained, then evaluated twice with the same weights: with all three stages, and with
only the first, whose boxes and scores are then the result. The held-out shapes are the same for all. This takes some
minutes per seed on two cores.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch

import tustin
from tustin.data.shapes import write_shapes
from tustin.doctor import collect
from tustin.report.formats import json_text
from tustin.support.files import write_text
from tustin.train import TASKS, load_recipe, train

SETTINGS: dict[str, Any] = {
    "model.img_size": 64,
    "model.args": {"patch_size": 8, "embed_dim": 64, "depth": 2, "d_state": 8},
    "detection.min_scale": 0.8,
    "detection.max_scale": 1.2,
    "detection.channels": 32,
    "detection.hidden": 64,
    "detection.proposals": 64,
    "detection.samples": 32,
    "optim.batch_size": 4,
    "optim.base_lr": 0.256,
    "run.device": "cpu",
}
FIGURES = ("box_ap75", "box_ap50", "box_ap")


def compare(seed: int, updates: int, shapes: Path, out: Path) -> dict[str, Any]:
    """The figures of the cascade and of its first stage on the held-out images, after one training."""
    settings = {**SETTINGS, "seed": seed, "updates": updates, "run.eval_updates": updates}
    config = load_recipe("coco-tiny-cpu", {**settings, "data.path": str(shapes), "out": str(out)})
    train(config)
    model, task = tustin.load(out / "last.safetensors"), TASKS["detection"]

    def figures() -> dict[str, float]:
        evaluation = task.evaluation_of(model, task.open_data(config.data, training=False), config.data)
        found, _ = evaluation.run(model, torch.device("cpu"), batch_size=1)
        return {name: found[name] for name in FIGURES}

    cascade = figures()
    model.roi_heads.stages = model.roi_heads.stages[:1]
    return {"seed": seed, "cascade": cascade, "first_stage": figures()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2", help="with commas between them (default: 0,1,2)")
    parser.add_argument("--updates", type=int, default=300, help="updates of each training (default: 300)")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    args = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        shapes = write_shapes(Path(folder) / "shapes", train=200, val=100)
        for seed in map(int, args.seeds.split(",")):
            results.append(found := compare(seed, args.updates, shapes, Path(folder) / f"seed-{seed}"))
            told = "; ".join(f"{n} {found['first_stage'][n]:.1f} -> {found['cascade'][n]:.1f}" for n in FIGURES)
            print(f"seed {seed}, first stage -> cascade: {told}", flush=True)
    gains = [found["cascade"]["box_ap75"] - found["first_stage"]["box_ap75"] for found in results]
    mean, low, high, better = statistics.mean(gains), min(gains), max(gains), sum(gain > 0 for gain in gains)
    print(f"box AP75 gained by the cascade: {mean:+.1f} ({low:+.1f} to {high:+.1f}), in {better} of {len(gains)} seeds")
    if args.json:
        write_text(args.json, json_text({"machine": collect(), "results": results}))


if __name__ == "__main__":
    main()
