"""Which extra of the package brings a library that is missing."""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["EXTRAS", "how_to_get", "insist_on"]

EXTRAS = {
    "train": ("accelerate", "jsonargparse", "matplotlib", "sklearn", "yaml"),
    "study": ("jinja2", "plotly", "scipy"),
    "segmentation": ("transformers",),
    "detection": ("faster_coco_eval",),
    "ray": ("ray",),
    "tensorboard": ("tensorboard",),
}
"""The extras of pyproject.toml, and the modules that each brings beside those of the extras it includes."""


def how_to_get(error: ModuleNotFoundError) -> str | None:
    """One sentence for a module that an extra brings; None for any other."""
    missing = (error.name or "").partition(".")[0]
    for extra, modules in EXTRAS.items():
        if missing in modules:
            return f"this needs {missing}, which is not installed; get it with: pip install 'tustin[{extra}]'"
    return None


def insist_on(extra: str) -> None:
    """Raise ModuleNotFoundError now, and not after hours, if a module of the extra is missing."""
    for module in EXTRAS[extra]:
        if find_spec(module) is None:
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)
