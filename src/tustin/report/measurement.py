"""What a benchmark found out, as data: written to JSON and CSV, and read back without measuring again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeAlias

from .. import __version__
from ..support.files import read_json, shortened
from ..support.ranges import Range, check
from .formats import table_of
from .table import Table, flat
from .timing import Ratio, Timing, lap_ratio

Count: TypeAlias = Annotated[int, Range(1, 2**40)]
"""A number of things, also in a file of a stranger."""
_BUSY = 0.3
"""Cores that others may use before a benchmark without being mentioned."""


@dataclass(frozen=True)
class Options:
    """What a benchmark was told; each reads what it is about."""

    device: str = "cpu"
    threads: Count = 1
    rounds: Count | None = None
    """None for as many as there is time for."""
    discretizations: tuple[str, ...] = ()
    batch_sizes: tuple[Count, ...] = ()
    model: str = ""
    sizes: tuple[Count, ...] = ()
    """Sides of images in pixels."""
    compile: bool = False
    lengths: tuple[Count, ...] = ()
    backends: tuple[str, ...] = ()
    dtype: str = "float32"
    layout: str = "channel-last"
    levels: tuple[str, ...] = ()
    """Instruction sets to compare, instead of backends."""
    quick: bool = False

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Options:
        told: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in facts.items()}
        check(cls, told, "options.")
        return cls(**told)


@dataclass(frozen=True, kw_only=True)
class Case:
    """Who computes what: one thing that is timed. Its classes differ in what that is."""

    kinds: ClassVar[dict[str, type[Case]]] = {}
    kind: ClassVar[str]
    device: str = "cpu"
    threads: Count = 1

    def __init_subclass__(cls, kind: str) -> None:
        cls.kind = kind
        Case.kinds[kind] = cls

    @property
    def work(self) -> Case:
        """The same for all that only differ in who does it."""
        return self

    @property
    def compiled(self) -> bool:
        """Whether the first call compiles."""
        return False

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        told: dict[str, Any] = {field.name: facts[field.name] for field in fields(cls)}
        check(cls, told)
        return cls(**told)


@dataclass
class _Machine:
    """What every report tells of it, and of its processor."""

    versions: dict[str, Any]
    gpu: str | None
    load: Annotated[float, Range(0)]
    native_level: str | None
    model: str
    cores: Count


@dataclass
class _Entry:
    """What a file says of a case beside its times."""

    peak_bytes: Count | None = None
    because: str = ""


@dataclass(frozen=True)
class Result:
    """All that one run found out."""

    benchmark: str
    command: str
    """What makes the same run again."""
    date: str
    options: Options
    machine: dict[str, Any]
    rounds: Count
    processes: Count
    """In which the rounds were, one after the other."""
    timings: Mapping[Case, Timing]
    peaks: Mapping[Case, int] = field(default_factory=dict)
    """Bytes that one call needs beside its weights."""
    skipped: Mapping[Case, str] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What only this benchmark finds out."""

    def facts(self) -> dict[str, Any]:
        """As plain data, for `from_facts` to read."""
        names = ("benchmark", "command", "date", "machine", "rounds", "processes")
        return {
            "tustin": __version__,
            **{name: getattr(self, name) for name in names},
            "options": asdict(self.options),
            "cases": [
                {**_identity(case), "seconds": timing.facts(), "peak_bytes": self.peaks.get(case)}
                for case, timing in self.timings.items()
            ],
            "skipped": [{**_identity(case), "because": reason} for case, reason in self.skipped.items()],
            "notes": dict(self.notes),
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Result:
        """The result whose `facts` they are; ValueError if there is none in them."""
        try:
            cases = [(_case(entry), entry) for entry in facts["cases"]]
            told = {name: facts[name] for name in ("benchmark", "command", "date", "rounds", "processes")}
            skipped = {_case(entry): entry["because"] for entry in facts["skipped"]}
            check(cls, told)
            for entry in [*facts["cases"], *facts["skipped"]]:
                check(_Entry, {name: entry[name] for name in ("peak_bytes", "because") if name in entry})
            machine, processor = facts["machine"], facts["machine"]["cpu"]
            known = {name: machine[name] for name in ("versions", "gpu", "load", "native_level")}
            check(_Machine, known | {name: processor[name] for name in ("model", "cores")}, "machine.")
            return cls(
                **told,
                options=Options.from_facts(facts["options"]),
                machine=dict(machine),
                timings={case: Timing.from_facts(entry["seconds"]) for case, entry in cases},
                peaks={case: peak for case, entry in cases if (peak := entry["peak_bytes"]) is not None},
                skipped=skipped,
                notes=dict(facts["notes"]),
            )
        except KeyError as error:
            raise ValueError(f"its content is not that of a result: {shortened(error.args[0])}") from error
        except ValueError as error:
            raise ValueError(f"its content is not that of a result: {error}") from error
        except (TypeError, AttributeError, OverflowError) as error:
            raise ValueError("its content is not that of a result") from error

    @classmethod
    def read(cls, path: Path, benchmark: str) -> Result:
        """The result of that benchmark in a file; ValueError names a file that holds anything else."""
        try:
            result = cls.from_facts(read_json(path))
            if result.benchmark != benchmark:
                raise ValueError(f"it is a result of 'tustin bench {result.benchmark}'")
        except ValueError as error:
            raise ValueError(f"{path} is not a result of 'tustin bench {benchmark}': {error}") from error
        return result

    def table(self) -> Table:
        """A row for each case, with its quartiles in seconds."""
        rows = []
        for case in [*self.timings, *self.skipped]:
            timing = self.timings.get(case)
            found = {name: value for name, value in timing.facts().items() if name != "laps"} if timing else {}
            rest = {"peak_bytes": self.peaks.get(case), "skipped_because": self.skipped.get(case)}
            rows.append({**flat(_identity(case)), **found, **rest})
        return table_of(self.benchmark, rows)

    def ratio(self, own: Case, other: Case) -> Ratio | None:
        """Time of one by time of the other, lap by lap, if both were measured."""
        return lap_ratio(self.timings.get(own), self.timings.get(other))

    @property
    def turns(self) -> str:
        """How many there were, in words."""
        return f"{self.rounds} round{'s'[: self.rounds > 1]} in turns"

    @property
    def where(self) -> str:
        """The machine in a few words, with the versions and the date."""
        facts, threads = self.machine, self.options.threads
        versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items() if version)
        level = f", native kernels for {facts['native_level']}" if facts["native_level"] else ""
        cores = f"{threads} thread{'s'[: threads > 1]} on {facts['cpu']['cores']} cores"
        return f"{facts['gpu'] or facts['cpu']['model'] + ', ' + cores + level}; {versions}; {self.date}."

    @property
    def how(self) -> str:
        """Rounds and processes in words, and a warning if others used the machine."""
        processes = "one process" if self.processes == 1 else f"{self.processes} processes"
        kept = ", with freed memory kept" if self.options.device == "cpu" else ""
        return f"{self.turns}, in {processes}{kept}{self.busy}"

    @property
    def busy(self) -> str:
        load = self.machine["load"]
        return f"; other programs used the machine (load {load:.1f}): do not trust these times" if load > _BUSY else ""


def _identity(case: Case) -> dict[str, Any]:
    return {"kind": case.kind, **asdict(case)}


def _case(entry: Mapping[str, Any]) -> Case:
    return Case.kinds[entry["kind"]].from_facts(entry)
