"""The study: rules x seeds, run in pairs, and what can be concluded from them."""

from .results import Plan, Result, Study, read_study

__all__ = ["Plan", "Result", "Study", "read_study"]
