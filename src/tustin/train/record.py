"""What a result rests on: versions, hardware, the commit of the code, and the backend that computed it."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from .. import __version__
from ..discretize import get_discretization, recorded_origin
from ..ops.dispatch import choose

PACKAGES = ("torchvision", "timm", "accelerate", "numpy", "scikit-learn")


def environment(device: torch.device, discretization: str, backend: str = "auto") -> dict[str, Any]:
    """Everything about where a run ran, as plain data."""
    from ..doctor import collect

    facts = collect()
    return {
        "versions": {
            "tustin": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            **_versions(),
        },
        "commit": _commit(),
        "platform": facts["platform"],
        "cpu": facts["cpu"],
        "gpus": facts["gpus"],
        "device": str(device),
        "backend": choose("selective_scan", backend, device, get_discretization(discretization)),
        "threads": torch.get_num_threads(),
        **recorded_origin(discretization),
    }


def _versions() -> dict[str, str]:
    found = {"tustin": __version__, "python": platform.python_version(), "torch": torch.__version__}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # installed in a way that leaves no metadata
            found[name] = "unknown"
    return found


def _commit() -> str | None:
    """The commit of this code, if it runs from a checkout, with a plus sign if files differ from it."""
    here = Path(__file__).parent
    try:
        told = subprocess.run(
            ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+"],
            cwd=here,
            capture_output=True,
            text=True,
            timeout=10,
        )
        tracked = subprocess.run(["git", "ls-files", __file__], cwd=here, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return told.stdout.strip() or None if tracked.stdout.strip() else None
