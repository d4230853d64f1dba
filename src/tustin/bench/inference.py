"""Vision Mamba with every rule, beside its peers, over batch sizes: inference, or by the same means training."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..discretize import DISCRETIZATIONS
from ..ops.dispatch import choose
from . import machine, measuring, pairing
from .checks import Check, worst
from .measuring import Measured, Report
from .models import PEERS, Candidate, Case, own_size
from .pairing import Ratio, Standing

BASELINE = "zoh"
PAPER_MODEL = "vim_tiny_patch16_224"
REFERENCE_UP_TO = 4
"""Images at once for which the reference backend is measured."""
BALANCED = 32
"""The batch size of the paper's second scenario."""


@dataclass(frozen=True)
class Options:
    """One run."""

    model: str
    discretizations: tuple[str, ...]
    """The baseline first."""
    batch_sizes: tuple[int, ...]
    device: str
    threads: int
    rounds: int | None
    """None for as many as there is time for."""
    compile: bool = False
    training: bool = False


@dataclass(frozen=True)
class Result:
    """All that one run found out."""

    options: Options
    command: str
    date: str
    machine: dict[str, Any]
    measured: Measured

    @property
    def img_size(self) -> int:
        return own_size(self.options.model)

    @property
    def candidates(self) -> list[Candidate]:
        """Those that were measured, in the order of the tables."""
        return list(dict.fromkeys(case.candidate for case in self.measured.seconds))

    @property
    def batch_sizes(self) -> list[int]:
        """Those that were measured."""
        return sorted({case.batch for case in self.measured.seconds})

    def case(self, candidate: Candidate, batch: int) -> Case:
        return make_case(self.options, candidate, batch)

    def of_discretization(self, discretization: str, batch: int) -> Case:
        return self.case(Candidate(self.options.model, discretization), batch)

    def calls(self, case: Case) -> list[float]:
        """Seconds of every call."""
        return [seconds for calls in self.measured.seconds.get(case, {}).values() for seconds in calls]

    def to_baseline(self, case: Case) -> Ratio | None:
        """Time of the case by time of the baseline, round by round."""
        seconds = self.measured.seconds
        baseline = self.of_discretization(BASELINE, case.batch)
        return pairing.paired(seconds.get(case, {}), seconds.get(baseline, {}))

    def noise(self, batch: int) -> float:
        """How far from 1 the ratio of the baseline to itself seems to be."""
        return pairing.noise(self.to_baseline(self.case(Candidate(self.options.model, BASELINE, again=True), batch)))

    def standing(self, batch: int) -> Standing:
        """Who is fastest among the rules."""
        series = {
            discretization: self.measured.seconds.get(self.of_discretization(discretization, batch), {})
            for discretization in self.options.discretizations
        }
        return pairing.standing({name: own for name, own in series.items() if own}, BASELINE, self.noise(batch))

    def differs_from_baseline(self, case: Case) -> bool:
        """Whether a difference may be claimed."""
        ratio = self.to_baseline(case)
        others = len(self.options.discretizations) - 1
        return ratio is not None and pairing.beyond_noise(ratio, self.noise(case.batch), max(1, others))

    def scenarios(self) -> dict[str, int]:
        """The batch sizes of the paper's ways to deploy a model, where they were measured."""
        wanted = {"real-time": 1, "balanced": BALANCED, "high throughput": max(self.batch_sizes)}
        return {name: batch for name, batch in wanted.items() if batch in self.batch_sizes}

    def checks(self) -> list[Check]:
        """What is promised about the throughput of every rule, relative to the baseline's."""
        checks = []
        for batch in self.batch_sizes:
            ratios = {
                discretization: self.to_baseline(self.of_discretization(discretization, batch))
                for discretization in self.options.discretizations[1:]
            }
            gains = {discretization: ratio.inverse() for discretization, ratio in ratios.items() if ratio}
            name = f"batch {batch}, throughput : {BASELINE}'s"
            if self.options.training:
                bil = {discretization: gain for discretization, gain in gains.items() if discretization == "bil"}
                checks.append(worst(f"{name}, bil", "≥", 1.0, bil, digits=3))
            bound = 0.95 if self.options.training else 0.97
            checks.append(worst(f"{name}, worst rule", "≥", bound, gains, digits=3))
        return [check for check in checks if check.measured is not None]


def candidates(options: Options) -> list[Candidate]:
    """The rules, the baseline once more, then the peers."""
    model, peer = options.model, PEERS.get(options.model)
    rules = [Candidate(model, discretization) for discretization in options.discretizations]
    found = [*rules, replace(rules[0], again=True)]
    if (
        not options.training
        and choose("selective_scan", "auto", torch.device(options.device), DISCRETIZATIONS[BASELINE]) != "reference"
    ):
        found.append(replace(rules[0], backend="reference"))
    if options.compile:
        found.append(replace(rules[0], compiled=True))
    if peer:
        found += [Candidate(peer, None), *([Candidate(peer, None, compiled=True)] if options.compile else [])]
    return found


def make_case(options: Options, candidate: Candidate, batch: int) -> Case:
    size = own_size(options.model)
    return Case(candidate, batch, size, options.training, options.device, options.threads)


def plan(options: Options) -> list[Case]:
    """Every case, from the smallest batch on."""
    return [
        make_case(options, candidate, batch)
        for batch in options.batch_sizes
        for candidate in candidates(options)
        if candidate.backend != "reference" or batch <= REFERENCE_UP_TO
    ]


def run(options: Options, command: str, report: Report) -> Result:
    """Measure all of it."""
    facts = describe(options.device, options.discretizations)
    return Result(options, command, today(), facts, measuring.measure(plan(options), options.rounds, report))


def describe(device: str, discretizations: Sequence[str]) -> dict[str, Any]:
    """The machine, and the backend that computes each rule on it."""
    backends = {
        discretization: str(choose("selective_scan", "auto", torch.device(device), DISCRETIZATIONS[discretization]))
        for discretization in discretizations
    }
    return machine.describe(device, "timm") | {"backends": backends, "environment": measuring.KEEP_MEMORY}


def today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()
