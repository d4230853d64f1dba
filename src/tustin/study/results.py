"""The folder of a study: the plan, and a file for each run that has ended; every file is whole or absent.

study.json                  what is compared, and with which settings
results/DISCRETIZATION-SEED.json    how one run ended
runs/DISCRETIZATION-SEED/           the output folder of that run, as `tustin train` writes it
decoded/                    images, once for all runs; may be removed at any time
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, Self, get_args, get_origin, get_type_hints

from ..support.files import read_json, shortened, write_text

__all__ = ["NO_STATE", "PLAN", "Plan", "Result", "Study", "read_study", "result_path", "run_folder"]

PLAN = "study.json"
CACHE = "decoded"
NO_STATE = "no_state"
"""The control: the baseline's model with the state of its scans removed."""
TIMES = ("train_seconds", "samples_per_second")
"""Metrics that are fields of a result, because they are of the whole run and not of its best epoch."""


class _Record:
    """A dataclass that is one JSON file."""

    _younger: ClassVar[frozenset[str]] = frozenset()
    """Fields that older files lack."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """What `write` wrote; ValueError names a file that holds anything else."""
        values = read_json(path)
        kinds = {name: kind for name, kind in get_type_hints(cls).items() if get_origin(kind) is not ClassVar}
        if not isinstance(values, dict) or not kinds.keys() - cls._younger <= values.keys() <= kinds.keys():
            raise ValueError(f"{str(path)!r} is damaged: it must hold exactly {', '.join(kinds)}")
        for name, kind in kinds.items():
            if name in values and not _is(values[name], kind):
                raise ValueError(f"{str(path)!r} is damaged: {name} is {shortened(values[name])}")
        record = cls(**values)
        if flaw := record.flaw():
            raise ValueError(f"{str(path)!r} is damaged: {flaw}")
        return record

    def flaw(self) -> str | None:
        """What is wrong with values that have the right types."""
        return None

    def write(self, path: Path) -> None:
        assert dataclasses.is_dataclass(self)
        write_text(path, json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False) + "\n")


def _is(value: object, kind: Any) -> bool:
    """Whether a value read from JSON is of the type that a field declares."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return value in inner
    if origin is UnionType:
        return any(_is(value, one) for one in inner)
    if origin is list:
        return isinstance(value, list) and all(_is(item, inner[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(_is(item, inner[1]) for item in value.values())
    if kind is Any:
        return True
    if kind in (NoneType, None):
        return value is None
    return isinstance(value, (int, float) if kind is float else kind) and not isinstance(value, bool)


def _is_diagnosis(facts: dict[str, Any]) -> bool:
    """Whether these are the facts of a `tustin.Diagnosis`."""

    def is_range(ends: object, *infinite: str) -> bool:
        return isinstance(ends, list) and len(ends) == 2 and all(_is(end, float) or end in infinite for end in ends)

    first, layers = facts.get("first_non_finite"), facts.get("layers")
    return (
        is_range(facts.get("stable"), "inf", "-inf")
        and (first is None or _has(first, {"layer": str, "tensor": str, "count": int, "total": int}))
        and isinstance(layers, list)
        and all(_has(steps, {"layer": str, "direction": str, "unstable": float, "z_range": Any}) for steps in layers)
        and all(steps["z_range"] is None or is_range(steps["z_range"]) for steps in layers)
    )


def _has(value: object, kinds: Mapping[str, Any]) -> bool:
    return isinstance(value, dict) and all(name in value and _is(value[name], kind) for name, kind in kinds.items())


@dataclass(frozen=True)
class Plan(_Record):
    """What a study compares, and the criteria."""

    _younger = frozenset({"control"})

    recipe: str
    """Name of a shipped recipe, or the path of a file."""
    discretizations: list[str]
    seeds: list[int]
    baseline: str
    """The rule that the others are compared with."""
    metric: str
    """Name of the metric that is compared, a key of `tustin.train.METRICS`."""
    level: float
    """Significance level of the test."""
    threshold: float
    """The smallest difference that matters in practice, in the unit of the metric."""
    settings: dict[str, Any]
    """The settings that differ from the recipe, by their dotted names."""
    threads: int
    """CPU threads of a run; the last bits of its result depend on them."""
    config: dict[str, Any]
    """Every setting that the runs share, by its dotted name."""
    environment: dict[str, Any]
    """Versions and hardware of the machine where the study was planned."""
    control: str | None = None
    """Name of the runs without a state, `NO_STATE`, if the study has them."""

    def flaw(self) -> str | None:
        from ..train.metrics import METRICS  # not above, because timm comes with it and takes long

        if not self.discretizations or not self.seeds:
            return "it plans no run"
        for name in self.discretizations:
            if Path(name).name != name:  # it is a part of the names of files
                return f"{shortened(name)} is not the name of a discretization"
        if self.control not in (None, NO_STATE):
            return f"the control is {shortened(self.control)}"
        if self.metric not in METRICS:
            return f"the metric is {shortened(self.metric)}"
        return None

    @property
    def by_updates(self) -> bool:
        """Whether the length of a run is given in updates instead of epochs."""
        return self.length()[0] == "updates"

    def length(self) -> tuple[str, int]:
        """The unit of the length of a run, "updates" or "epoch", and the length; 0 if it is unknown."""
        for name, counted in (("updates", "updates"), ("epochs", "epoch")):
            if isinstance(total := self.config.get(name), int) and total > 0:
                return counted, total
        return "epoch", 0

    def runs(self) -> list[tuple[str, int]]:
        """Rule (or control) and seed of every run, seed by seed, so that an unfinished study is balanced."""
        return [(method, seed) for seed in self.seeds for method in self.methods]

    @property
    def methods(self) -> list[str]:
        """The rules, and then the control if there is one."""
        return [*self.discretizations, *([self.control] if self.control else [])]


@dataclass(frozen=True)
class Result(_Record):
    """How one run ended."""

    _younger = frozenset({"best_update", "cpu_seconds", "sizes"})

    discretization: str
    seed: int
    status: Literal["done", "failed"]
    error: str | None = None
    diagnosis: dict[str, Any] | None = None
    """For a run that failed: the result of `tustin.diagnose`, as plain values."""
    metrics: dict[str, float] = field(default_factory=dict)
    """The metrics at the best epoch, by their names in `train.METRICS`; empty for a run that failed."""
    best_epoch: float = 0
    """Number of epochs until then; a whole number if the run is evaluated after whole epochs."""
    best_update: int | None = None
    """Number of updates until then."""
    train_seconds: float = 0.0
    """Wall time of the training, without evaluation."""
    cpu_seconds: float | None = None
    """CPU time of the training, over all threads of the run's process."""
    samples_per_second: float = 0.0
    """Mean over the training, without evaluation."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Sizes of model, data and run, see `Trainer.sizes`."""
    curve: list[dict[str, Any]] = field(default_factory=list)
    """One record per epoch, as in metrics.jsonl; for a run that failed, the records until then."""
    environment: dict[str, Any] = field(default_factory=dict)

    def flaw(self) -> str | None:
        for record in self.curve:
            if not {"epoch", "updates"} <= record.keys() or not all(_is(value, float) for value in record.values()):
                return f"a record of its curve is {shortened(record)}"
        if self.diagnosis and not _is_diagnosis(self.diagnosis):
            return f"diagnosis is {shortened(self.diagnosis)}"
        return None


@dataclass(frozen=True)
class Study:
    """A study as read from its folder: the plan, the results, and what is missing."""

    plan: Plan
    results: list[Result]
    """In the order of the plan, including runs that failed."""
    missing: list[tuple[str, int]]
    """Discretization and seed of the runs that have not finished."""
    damaged: Mapping[Path, str] = field(default_factory=dict)
    """Result files that cannot be read, and why; their runs are missing."""


def result_path(folder: Path, discretization: str, seed: int) -> Path:
    return folder / "results" / f"{discretization}-{seed}.json"


def run_folder(folder: Path, discretization: str, seed: int) -> Path:
    return folder / "runs" / f"{discretization}-{seed}"


def read_study(folder: str | Path) -> Study:
    """The plan and the results in the folder of a study."""
    folder = Path(folder)
    if not (folder / PLAN).is_file():
        raise FileNotFoundError(f"there is no study in {str(folder)!r}: {PLAN} is missing")
    plan = Plan.read(folder / PLAN)
    results: list[Result] = []
    missing: list[tuple[str, int]] = []
    damaged: dict[Path, str] = {}
    for run in plan.runs():
        path = result_path(folder, *run)
        try:
            result = Result.read(path)
            if (result.discretization, result.seed) != run:
                raise ValueError(f"{str(path)!r} is damaged: it holds {result.discretization}, seed {result.seed}")
            results.append(result)
        except FileNotFoundError:
            missing.append(run)
        except ValueError as error:
            missing.append(run)
            damaged[path] = str(error)
    return Study(plan, results, missing, damaged)
