"""The plan of a study: what it compares, what all its runs share, and whether an earlier study may go on with it."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..discretize import get_discretization, origin_of
from ..discretize.own import shown
from ..support.files import shortened
from ..support.names import unknown
from ..train import METRICS, TASKS, Config, load_recipe
from ..train.folder import TRAINING
from ..train.record import environment
from ..train.run import FREE
from ..train.tasks import DATA_SETS
from .results import CACHE, NO_STATE, PLAN, TIMES, Plan, run_folder

__all__ = ["BY_THE_STUDY", "PAPER_DISCRETIZATIONS", "Wishes", "config_in", "config_of", "make_plan"]

PAPER_DISCRETIZATIONS = ("zoh", "foh", "bil", "pol", "hoh", "rk4")

BY_THE_STUDY = {
    "model.discretization": "--discretizations gives the rules",
    "seed": "--seeds gives the seeds",
    "out": "--out names the folder of the study",
    "run.threads": "--threads-per-run gives the threads",
    "run.resume": "repeat the command to continue; another --out starts over",
}
"""Settings that a study decides for each run, and how to tell it."""


@dataclass(frozen=True)
class Wishes:
    """The options of a study. None keeps the value of an earlier plan in the folder, or the default."""

    discretizations: Sequence[str] | None = None
    seeds: Sequence[int] | None = None
    baseline: str | None = None
    metric: str | None = None
    level: float | None = None
    threshold: float | None = None
    threads: int | None = None
    control: bool | None = None


def make_plan(recipe: str, config: Config, folder: Path, wishes: Wishes) -> Plan:
    """The plan for `folder`. If a study has begun there, the plan must continue it.

    It may then add rules and seeds, and change what no run depends on, such as the baseline.
    """
    before = Plan.read(folder / PLAN) if (folder / PLAN).is_file() and _has_begun(folder) else None
    plan = _plan(recipe, config, wishes, before)
    _check(plan)
    if before:
        _check_continues(before, plan, folder)
    return plan


def config_of(plan: Plan, config: Config, folder: Path, discretization: str, seed: int) -> Config:
    """The settings of one run. Runs of the same seed differ in nothing but the rule; the control has the baseline's."""
    config = copy.deepcopy(config)
    config.model.discretization, config.seed = discretization, seed
    if discretization == NO_STATE:
        config.model.discretization = plan.baseline
        config.model.args |= {"state": False}
    config.out = str(run_folder(folder, discretization, seed))
    config.run.threads, config.run.resume = plan.threads, None
    if config.data.cache is None and "cache" in DATA_SETS[config.data.name].settings:
        config.data.cache = str(folder / CACHE)
    return config


def config_in(plan: Plan, folder: Path) -> Config:
    """The settings that the runs of a study share, as its plan has them."""
    settings = {name: value for name, value in plan.config.items() if name not in ("description", "task")}
    config = load_recipe(plan.recipe, settings)
    return config_of(plan, config, folder.absolute(), plan.baseline, plan.seeds[0])


def _has_begun(folder: Path) -> bool:
    """Whether there is anything that another plan would not fit."""
    return any(folder.glob("results/*.json")) or any(folder.glob(f"runs/*/{TRAINING}"))


def _plan(recipe: str, config: Config, wishes: Wishes, before: Plan | None) -> Plan:
    shared = _shared(config)
    in_recipe = _shared(load_recipe(recipe))

    def wished(name: str, default: Any) -> Any:
        wish = getattr(wishes, name)
        return wish if wish is not None else getattr(before, name) if before else default

    discretizations = list(dict.fromkeys(wished("discretizations", PAPER_DISCRETIZATIONS)))
    own = {name: origin.as_facts() for name in discretizations if (origin := origin_of(name))}
    return Plan(
        recipe=recipe,
        discretizations=discretizations,
        seeds=list(dict.fromkeys(wished("seeds", range(10)))),
        baseline=wished("baseline", "zoh"),
        metric=wished("metric", TASKS[config.task].primary.name),
        level=wished("level", 0.05),
        threshold=wished("threshold", 0.7),
        settings={name: value for name, value in shared.items() if value != in_recipe[name]},
        threads=wished("threads", 1),
        config=shared,
        environment=(before.environment if before else _environment(config)) | ({"rules": own} if own else {}),
        control=_control(wishes, before),
    )


def _environment(config: Config) -> dict[str, Any]:
    device = torch.accelerator.current_accelerator(check_available=True) if config.run.device == "auto" else None
    return environment(device or torch.device("cpu"), "zoh")


def _control(wishes: Wishes, before: Plan | None) -> str | None:
    if wishes.control is None and before:
        return before.control
    return NO_STATE if wishes.control in (True, None) else None


def _shared(config: Config) -> dict[str, Any]:
    """What all runs have in common, as JSON gives it back."""
    shared = {name: value for name, value in config.flat().items() if name not in BY_THE_STUDY}
    as_read: dict[str, Any] = json.loads(json.dumps(shared))
    return as_read


def _check(plan: Plan) -> None:
    for discretization in plan.discretizations:
        get_discretization(discretization)
    if plan.config.get("model.args", {}).get("state") is False:
        raise ValueError("model.args.state is not a setting of all runs: --control adds runs without a state")
    if not plan.seeds:
        raise ValueError("a study needs at least one seed")
    for seed in plan.seeds:
        if not 0 <= seed < 2**63:
            raise ValueError(f"seeds must be at least 0 and less than 2**63, got {shortened(seed)}")
    if plan.baseline not in plan.discretizations:
        raise ValueError(
            f"the baseline {plan.baseline!r} is not among the discretizations ({', '.join(plan.discretizations)}); "
            "add it to --discretizations or give another --baseline"
        )
    learnt = [name for name in METRICS if name not in TIMES]
    if plan.metric not in learnt:
        raise ValueError(unknown("metric", plan.metric, learnt))
    if not 0 < plan.level < 1:
        raise ValueError(f"the level of the test must be between 0 and 1, got {plan.level}")
    if not 0 <= plan.threshold < float("inf"):
        raise ValueError(f"the threshold must be 0 or more, got {plan.threshold}")
    if plan.threads < 1:
        raise ValueError(f"a run needs at least one thread, got {plan.threads}")


def _check_continues(before: Plan, plan: Plan, folder: Path) -> None:
    def refuse(name: str, was: object, now: object) -> None:
        raise ValueError(f"{str(folder)!r} holds a study with {name} {was!r}, not {now!r}; give another --out")

    if plan.recipe != before.recipe:
        refuse("recipe", before.recipe, plan.recipe)
    if plan.threads != before.threads:
        refuse("threads per run", before.threads, plan.threads)
    rules = plan.environment.get("rules", {})
    for name, recorded in before.environment.get("rules", {}).items():
        if name in rules and rules[name] != recorded:
            raise ValueError(
                f"{str(folder)!r} holds a study with {name!r} from {shown(recorded)}, not from {shown(rules[name])}; "
                "give another --out"
            )
    for name, value in plan.config.items():
        if name not in FREE and before.config.get(name) != value:
            refuse(name, before.config.get(name), value)
    for what, had, has in (
        ("discretization", before.methods, plan.methods),
        ("seed", before.seeds, plan.seeds),
    ):
        if dropped := [item for item in had if item not in has]:
            raise ValueError(
                f"{str(folder)!r} holds a study with {what} {dropped[0]!r}, which this command leaves out; "
                "a study can be extended but not reduced: name it again, or give another --out"
            )
