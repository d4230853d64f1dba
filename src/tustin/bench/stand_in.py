"""What is timed of MambaVision: a call of one model with one of the two scans that our stand-in for mamba_ssm has."""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from .. import compat
from ..report.measurement import Case, Count

OURS, SLOW = "selective_scan_fn", "selective_scan_ref"
SIZE = 224


@dataclass(frozen=True)
class MambaVisionCase(Case, kind="mambavision"):
    """A forward pass or a training step of MambaVision-T, by the name of the scan."""

    scan: str
    batch: Count
    training: bool = False

    @property
    def work(self) -> MambaVisionCase:
        return replace(self, scan="")

    def __str__(self) -> str:
        return f"{self.scan}, {self.what}"

    @property
    def what(self) -> str:
        return f"{'training step' if self.training else 'inference'}, batch {self.batch}"


def make_call(case: MambaVisionCase) -> Callable[[], object]:
    """One call, ready to be timed."""
    module, interface = _modules()
    model, scan = _model(case.training), getattr(interface, case.scan)
    images = torch.randn(case.batch, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))

    def call() -> object:
        module.selective_scan_fn = scan
        if case.training:
            _step(model, images)
            return None
        with torch.inference_mode():
            return model(images)

    return call


def _step(model: nn.Module, images: Tensor) -> None:
    """Forward and backward."""
    model.zero_grad()
    labels = torch.arange(len(images))
    nn.functional.cross_entropy(model(images), labels).backward()


@functools.cache
def _modules() -> tuple[Any, Any]:
    """Its module, and the one of the stand-in that has both scans."""
    compat.install(replace=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it imports from where timm's names used to be
        module = importlib.import_module("mambavision.models.mamba_vision")
    return module, importlib.import_module("mamba_ssm.ops.selective_scan_interface")


@functools.cache
def _model(training: bool) -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = _modules()[0].mamba_vision_T()
    return model.train(training)
