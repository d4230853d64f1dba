"""Rules of users' own: from a file that they name, or from a package that they have installed.

Both run code, so nobody but the user may ask for them: no checkpoint, recipe or repository ever does. What a file says
about its rule is a name and a digest, with which the user's own file is compared.
"""

from __future__ import annotations

import hashlib
import sys
import traceback
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from ..support.files import insist_on_file
from .base import DISCRETIZATIONS, Discretization, register

__all__ = ["GROUP", "Origin", "RuleFile", "import_rules", "imported_files", "origin_of", "recorded_origin"]

GROUP = "tustin.discretizations"
"""Entry points of packages: each leads to a `Discretization`, which is registered when this package is imported."""


@dataclass(frozen=True)
class RuleFile:
    """A Python file that registers rules, with its content: other processes run the same bytes."""

    path: str = field(compare=False)
    source: bytes = field(repr=False)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.source).hexdigest()

    def run(self) -> list[Discretization]:
        """Execute it, unless that was done before, and return the rules that it has registered."""
        if known := [rule for rule, origin in _ORIGINS.items() if origin.content == self and _is_registered(rule)]:
            return known
        before = set(DISCRETIZATIONS)
        module = ModuleType(f"tustin_rules_{self.sha256[:16]}")
        module.__file__ = self.path
        sys.modules[module.__name__] = module  # where dataclasses and pickle look for what it defines
        try:
            exec(compile(self.source, self.path, "exec"), module.__dict__)
            rules = [rule for name, rule in DISCRETIZATIONS.items() if name not in before]
            if not rules:
                raise _NothingRegistered(f"{self.path} registers no rule: it must call tustin.register")
        except BaseException as error:
            for name in set(DISCRETIZATIONS) - before:
                del DISCRETIZATIONS[name]
            del sys.modules[module.__name__]
            if isinstance(error, Exception | SystemExit) and not isinstance(error, _NothingRegistered):
                raise ValueError(f"{self.path}{_line(error, self.path)}: {_words(error)}") from error
            raise
        _ORIGINS.update((rule, Origin(Path(self.path).name, self.sha256, self)) for rule in rules)
        return rules


class _NothingRegistered(ValueError):
    """It says already what is wrong with which file."""


@dataclass(frozen=True)
class Origin:
    """Where a rule that is not built in comes from."""

    file: str
    """Name of the file, without its folder; for a rule from a package, also the package and its version."""
    sha256: str
    content: RuleFile | None = field(default=None, compare=False, repr=False)

    def as_facts(self) -> dict[str, str]:
        """What is recorded with a run, a checkpoint and a study."""
        return {"file": self.file, "sha256": self.sha256}


_ORIGINS: dict[Discretization, Origin] = {}


def import_rules(path: str | Path) -> list[Discretization]:
    """Execute a Python file that registers rules, and return them. Checkpoints record the file's name and digest."""
    insist_on_file(Path(path))
    return RuleFile(str(path), Path(path).read_bytes()).run()


def imported_files() -> list[RuleFile]:
    """The files that rules were imported from, so that another process can import them too."""
    found = (origin.content for rule, origin in _ORIGINS.items() if _is_registered(rule))
    return list(dict.fromkeys(file for file in found if file))


def origin_of(name: str) -> Origin | None:
    """Where a registered rule comes from; None if it is built in, or registered by a program."""
    rule = DISCRETIZATIONS.get(name)
    return _ORIGINS.get(rule) if rule else None


def recorded_origin(name: str) -> dict[str, dict[str, str]]:
    """What checkpoints and results record about a rule from a file: {"rule": {"file", "sha256"}}; else {}."""
    origin = origin_of(name)
    return {"rule": origin.as_facts()} if origin else {}


def shown(recorded: Mapping[str, str]) -> str:
    """What is recorded about a rule, for people; it may come from a stranger."""
    return f"{recorded['file']!r} (SHA-256 {recorded['sha256'][:16]!r}...)"


def register_installed(points: Sequence[EntryPoint] | None = None) -> None:
    """The rules of installed packages. One that cannot be used is told of, and the others are not harmed."""
    for point in entry_points(group=GROUP) if points is None else points:
        package = f"{point.dist.name} {point.dist.version}" if point.dist else "a package"
        try:
            rule = point.load()
            if not isinstance(rule, Discretization):
                raise TypeError(f"{point.value} is a {type(rule).__name__}, expected a Discretization")
            if not _is_registered(rule):  # its module may have done so
                register(rule)
            _ORIGINS[rule] = Origin(f"{package}, {point.module}", _digest_of(point.module))
        except Exception as error:
            warnings.warn(f"the rule {point.name!r} of {package} cannot be used: {_words(error)}", stacklevel=2)


def _is_registered(rule: Discretization) -> bool:
    return DISCRETIZATIONS.get(rule.name) is rule


def _digest_of(module: str) -> str:
    """Of the file of an imported module."""
    file = getattr(sys.modules[module], "__file__", None)
    return hashlib.sha256(Path(file).read_bytes() if file else b"").hexdigest()


def _words(error: BaseException) -> str:
    """What went wrong in code that is not ours; what `register` says needs no name of an exception."""
    text = " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())
    return text if isinstance(error, ValueError) and text else f"{type(error).__name__}: {text}"


def _line(error: BaseException, path: str) -> str:
    """Where in the file, if it was there."""
    if isinstance(error, SyntaxError) and error.filename == path:
        return f", line {error.lineno}"
    steps: list[Any] = [step for step in traceback.extract_tb(error.__traceback__) if step.filename == path]
    return f", line {steps[-1].lineno}" if steps else ""
