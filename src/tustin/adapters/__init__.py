"""Our scan and its rules in models that others have built and trained."""

from .transformers import adapt, restore

__all__ = ["adapt", "restore"]
