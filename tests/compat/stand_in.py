"""The stand-in for as long as a test needs it: whatever it does to Python's imports is undone."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import tustin.compat
from tustin.compat import rule

THEIRS = ("mamba_ssm", "causal_conv1d", "mambavision")


@contextmanager
def imports_restored() -> Iterator[None]:
    """Neither the stand-in nor what it stands in for has been imported, and after it all is as it was."""
    path, finders, before = list(sys.path), list(sys.meta_path), rule.rule()
    modules = _taken_out()
    try:
        yield
    finally:
        _taken_out()
        sys.modules.update(modules)
        sys.path[:], sys.meta_path[:] = path, finders
        rule.set_rule(before)


@contextmanager
def installed() -> Iterator[None]:
    """The stand-in, also where the real packages are."""
    with imports_restored():
        tustin.compat.install(replace=True)
        yield


def _taken_out() -> dict[str, object]:
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] in THEIRS}
