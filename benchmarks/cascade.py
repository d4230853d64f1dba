"""What the cascade adds to its first stage: box AP on coloured shapes, over several seeds.

    python benchmarks/cascade.py [--seeds 0,1,2] [--updates 300] [--json cascade.json]

For each seed a small detector is trained, then evaluated twice with the same weights: with all three stages, and with
only the first, whose boxes and scores are then the result. The held-out shapes are the same for all. This takes some
minutes per seed on two cores.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch

import tustin
from tustin.data.shapes import write_shapes
from tustin.doctor import collect
from tustin.support.files import write_text
from tustin.train import TASKS, load_recipe, train
from tustin.train.config import DataConfig

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


def measure(model: Any, data: DataConfig) -> dict[str, float]:
    """The figures of a detector on the held-out images."""
    detection = TASKS["detection"]
    evaluation = detection.evaluation_of(model, detection.open_data(data, training=False), data)
    figures, _ = evaluation.run(model, torch.device("cpu"), batch_size=1)
    return {name: figures[name] for name in FIGURES}


def compare(seed: int, updates: int, shapes: Path, out: Path) -> dict[str, Any]:
    """The figures of the cascade and of its first stage after one training."""
    settings = {**SETTINGS, "seed": seed, "updates": updates, "run.eval_updates": updates}
    config = load_recipe("coco-tiny-cpu", {**settings, "data.path": str(shapes), "out": str(out)})
    train(config)
    model = tustin.load(out / "last.safetensors")
    cascade = measure(model, config.data)
    model.roi_heads.stages = model.roi_heads.stages[:1]
    return {"seed": seed, "cascade": cascade, "first_stage": measure(model, config.data)}


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
            result = compare(seed, args.updates, shapes, Path(folder) / f"seed-{seed}")
            results.append(result)
            told = "; ".join(f"{n} {result['first_stage'][n]:.1f} -> {result['cascade'][n]:.1f}" for n in FIGURES)
            print(f"seed {seed}, first stage -> cascade: {told}", flush=True)
    gains = [one["cascade"]["box_ap75"] - one["first_stage"]["box_ap75"] for one in results]
    better = sum(gain > 0 for gain in gains)
    mean, low, high = statistics.mean(gains), min(gains), max(gains)
    print(f"box AP75 gained by the cascade: {mean:+.1f} ({low:+.1f} to {high:+.1f}), in {better} of {len(gains)} seeds")
    if args.json:
        write_text(args.json, json.dumps({"machine": collect(), "results": results}, indent=2, default=str) + "\n")


if __name__ == "__main__":
    main()
