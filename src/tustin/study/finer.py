"""The trained models of a study on images sampled more finely: which rules survive, without any training?

Patches come closer by a factor f, so that there are about f² times as many. The steps stay as they are, or shrink by f
(the length of a row) or by f² (that of the whole sequence); the taps of the convolution stay neighbours or lie f apart.

DIR/finer/METHOD-SEED.json    the metric of one model in each of these ways
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from ..data.batches import Batch, BatchSource, Key
from ..models import describe, load
from ..report.table import NOTHING, Table
from ..support.files import read_json, write_text
from ..train import TASKS, Config
from ..train.folder import BEST
from .results import Study, run_folder
from .wording import digits

__all__ = ["Way", "evaluate", "finer_table", "ways"]

FOLDER = "finer"


@dataclass(frozen=True)
class Way:
    """How a model is shown images."""

    factor: int
    """By which its stride is divided."""
    delta_scale: float
    conv_dilation: int

    @property
    def name(self) -> str:
        if self.factor == 1:
            return "as trained"
        dilated = f", taps {self.conv_dilation} apart" if self.conv_dilation > 1 else ""
        return f"1/{self.factor}: Δ·{self.delta_scale:g}{dilated}"


def ways(factors: Sequence[int] = (2, 4)) -> list[Way]:
    """As in training, then for each factor: Δ, Δ/f, Δ/f², and the last two with a dilated convolution."""
    found = [Way(1, 1.0, 1)]
    for f in factors:
        found += [Way(f, 1.0, 1), Way(f, 1 / f, 1), Way(f, 1 / f**2, 1), Way(f, 1 / f, f), Way(f, 1 / f**2, f)]
    return found


def evaluate(
    study: Study,
    folder: Path,
    config: Config,
    chosen: Sequence[Way],
    samples: int | None,
    tell: Callable[[str], None],
    batch_size: int = 128,
) -> dict[tuple[str, int], dict[str, float]]:
    """The metric of each model whose checkpoint is there, by method and seed, then by the name of the way.

    What was evaluated before, on as many samples, is not evaluated again.
    """
    if config.task != "classification":
        raise ValueError(f"finer images are for classification only, but this is a study of {config.task}")
    found: dict[tuple[str, int], dict[str, float]] = {}
    evaluation: Any = None
    for result in study.results:
        which = result.discretization, result.seed
        path = folder / FOLDER / f"{which[0]}-{which[1]}.json"
        before = _read(path, samples)
        missing = [way for way in chosen if way.name not in before]
        checkpoint = run_folder(folder, *which) / BEST
        if missing and checkpoint.exists():
            if evaluation is None:
                evaluation = _evaluation(config, checkpoint, samples)
            for way in missing:
                before[way.name] = _metric(study, evaluation, checkpoint, way, batch_size)
            write_text(path, json.dumps({"samples": samples, "ways": before}, indent=2) + "\n")
            told = ", ".join(f"{way.name} {before[way.name]:.2f}" for way in chosen)
            tell(f"{which[0]}, seed {which[1]}: {told}")
        if all(way.name in before for way in chosen):
            found[which] = before
    return found


def _read(path: Path, samples: int | None) -> dict[str, float]:
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        return {}
    told = read_json(path)
    if not isinstance(told, dict) or not isinstance(told.get("ways"), dict):
        raise ValueError(f"{str(path)!r} is damaged: it must contain 'samples' and 'ways'")
    return dict(told["ways"]) if told.get("samples") == samples else {}


def _evaluation(config: Config, checkpoint: Path, samples: int | None) -> Any:
    kind = TASKS[config.task]
    images = kind.open_data(config.data, training=False)
    evaluation = kind.evaluation_of(load(checkpoint), images, config.data, None)
    if samples is None or samples >= len(evaluation.data):
        return evaluation
    return type(evaluation)(**{**vars(evaluation), "data": _Some(evaluation.data, samples)})


def _metric(study: Study, evaluation: Any, checkpoint: Path, way: Way, batch_size: int) -> float:
    stride = describe(checkpoint)["config"]["stride"]
    if stride % way.factor:
        raise ValueError(f"a stride of {stride} cannot be divided by {way.factor}")
    model = load(checkpoint, stride=stride // way.factor, delta_scale=way.delta_scale, conv_dilation=way.conv_dilation)
    metrics, _ = evaluation.run(model, torch.device("cpu"), batch_size)
    return float(metrics[study.plan.metric])


@dataclass(frozen=True)
class _Some:
    """Evenly spread samples of others: of images that are sorted by class, of every class as many."""

    all: BatchSource
    number: int

    def __len__(self) -> int:
        return self.number

    def __getitems__(self, keys: list[Key]) -> Batch:
        total = len(self.all)
        return self.all.__getitems__([(index * total // self.number, seed) for index, seed in keys])


def finer_table(
    study: Study, found: dict[tuple[str, int], dict[str, float]], chosen: Sequence[Way], samples: int | None
) -> Table:
    """A row for each method: the metric in each of the ways, mean ± standard deviation over the seeds."""
    images = f"{samples:,} evenly spread" if samples else "all"
    plan = study.plan
    from ..train.metrics import METRICS

    metric = METRICS[plan.metric]
    rows = []
    for method in plan.methods:
        values = [told for (name, _), told in found.items() if name == method]
        rows.append((method, str(len(values)), *_cells(values, chosen, digits(metric))))
    return Table(
        "finer",
        "On images sampled more finely",
        ("discretization", "n", *(way.name for way in chosen)),
        rows,
        f"{metric.title[0].upper()}{metric.title[1:]}{f' ({metric.unit})' if metric.unit else ''} of the trained "
        f"models on {images} held-out images, with patches closer together: mean ± standard deviation over n seeds. "
        "The models were not trained again. 1/2: half the stride, so up to four times as many tokens. Δ·0.25: every "
        "step multiplied by 0.25. Taps 2 apart: the convolution is dilated by 2.",
    )


def _cells(values: Sequence[dict[str, float]], chosen: Sequence[Way], decimals: int) -> Iterator[str]:
    for way in chosen:
        numbers = [told[way.name] for told in values]
        if not numbers:
            yield NOTHING
        else:
            spread = f" ± {statistics.stdev(numbers):.{decimals}f}" if len(numbers) > 1 else ""
            yield f"{statistics.fmean(numbers):.{decimals}f}{spread}"


def facts(found: dict[tuple[str, int], dict[str, float]], chosen: Sequence[Way]) -> dict[str, Any]:
    """As plain data."""
    return {
        "ways": [{"name": way.name, **asdict(way)} for way in chosen],
        "models": [{"discretization": name, "seed": seed, "values": told} for (name, seed), told in found.items()],
    }
