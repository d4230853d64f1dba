"""The speed of whole models with every rule, as `tustin bench inference` and `train` measure it: who is fastest?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

from ..support.ranges import check
from . import timing
from .measurement import Case, Count, Result
from .timing import Ratio, Standing, Timing

BASELINE = "zoh"
ONNXRUNTIME = "onnxruntime"
BALANCED = 32
"""The batch size of the paper's second scenario."""


@dataclass(frozen=True)
class Candidate:
    """Who computes."""

    model: str
    discretization: str | None
    """The rule of a Vision Mamba; a peer has none."""
    backend: str = "auto"
    """Of the scan; or "onnxruntime", which runs the whole model as it is exported."""
    compiled: bool = False
    """By torch.compile."""
    again: bool = False
    """The same once more, as if it were another: by how much it seems to differ is the noise."""

    @property
    def name(self) -> str:
        name = self.discretization or self.model
        name += {"reference": ", reference backend", ONNXRUNTIME: f", {ONNXRUNTIME}"}.get(self.backend, "")
        name += ", torch.compile" * self.compiled
        return name + " again" * self.again


@dataclass(frozen=True)
class ModelCase(Case, kind="model"):
    """A call of a model: a forward pass, or a training step."""

    candidate: Candidate
    batch: Count
    img_size: Count
    training: bool = False

    @property
    def pixels(self) -> int:
        """What time and memory grow with."""
        return self.batch * self.img_size**2

    @property
    def work(self) -> ModelCase:
        return replace(self, candidate=Candidate("", None))

    @property
    def compiled(self) -> bool:
        return self.candidate.compiled

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        check(Candidate, candidate := dict(facts["candidate"]), "candidate.")
        return super().from_facts({**facts, "candidate": Candidate(**candidate)})

    def __str__(self) -> str:
        step = ", training step" * self.training
        return f"{self.candidate.name}, batch {self.batch}, {self.img_size} px{step}"


@dataclass(frozen=True)
class Speed:
    """A result over candidates and batch sizes, the rest being equal."""

    result: Result

    @cached_property
    def cases(self) -> list[ModelCase]:
        """Those that were measured, in the order of the tables."""
        cases = [case for case in self.result.timings if isinstance(case, ModelCase)]
        if not cases:
            raise ValueError("nothing was measured")
        return cases

    @property
    def training(self) -> bool:
        return self.cases[0].training

    @property
    def candidates(self) -> list[Candidate]:
        return list(dict.fromkeys(case.candidate for case in self.cases))

    @property
    def batch_sizes(self) -> list[int]:
        return sorted({case.batch for case in self.cases})

    def case(self, candidate: Candidate, batch: int) -> ModelCase:
        return replace(self.cases[0], candidate=candidate, batch=batch)

    def of_discretization(self, discretization: str, batch: int) -> ModelCase:
        return self.case(Candidate(self.result.options.model, discretization), batch)

    def timing(self, case: ModelCase) -> Timing | None:
        return self.result.timings.get(case)

    def to_baseline(self, case: ModelCase) -> Ratio | None:
        """Time of the case by time of the baseline, round by round."""
        return timing.round_ratio(self.timing(case), self.timing(self.of_discretization(BASELINE, case.batch)))

    def noise(self, batch: int) -> float:
        """How far from 1 the ratio of the baseline to itself seems to be; infinite if it is not known."""
        same = self.to_baseline(self.case(Candidate(self.result.options.model, BASELINE, again=True), batch))
        low, high = same.interval() if same else (0.0, math.inf)
        return max(1 - low, high - 1)

    def standing(self, batch: int) -> Standing:
        """Who is fastest among the rules."""
        found = {name: self.timing(self.of_discretization(name, batch)) for name in self.result.options.discretizations}
        return timing.standing({name: own for name, own in found.items() if own}, BASELINE, self.noise(batch))

    def differs_from_baseline(self, case: ModelCase) -> bool:
        """Whether a difference may be claimed."""
        ratio = self.to_baseline(case)
        others = len(self.result.options.discretizations) - 1
        return ratio is not None and timing.beyond_noise(ratio, self.noise(case.batch), max(1, others))

    def scenarios(self) -> dict[str, int]:
        """The batch sizes of the paper's ways to deploy a model, where they were measured."""
        wanted = {"real-time": 1, "balanced": BALANCED, "high throughput": max(self.batch_sizes)}
        return {name: batch for name, batch in wanted.items() if batch in self.batch_sizes}
