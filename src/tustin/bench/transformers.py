"""A Hugging Face Mamba as transformers runs it on the CPU, with its mambapy, and adapted: prompt, token, training."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

from ..report.measurement import Case, Options, Result
from ..report.table import NOTHING, Table, number
from ..report.terminal import Report
from ..report.timing import Ratio, lap_ratio
from . import machine
from .checks import Check, checks_tables, worst
from .language import DECODING, LAYERS, PATHS, PREFILL, TRAINING, LanguageCase
from .measure import Party, Plan, Process, measure, profile
from .models import shares_tables
from .outcome import Outcome, left_out

TRAINED_LAYERS = 4
"""Of the training step: with all of them transformers' own takes many minutes."""
ONCE = 10.0
"""What takes more seconds than this is called once, so that a run takes minutes."""
BOUNDS = ((TRAINING, 512, 100), (PREFILL, 512, 4), (DECODING, 1, 1.3))
"""How many times as fast as transformers' own path the adapted model is promised to be, on two cores."""


def cases(options: Options) -> list[LanguageCase]:
    """Every piece of work in every way; the quickest first."""
    work = [(DECODING, 1), *((PREFILL, length) for length in options.lengths)]
    work += [(TRAINING, length) for length in (256, 512) if not options.quick or length == 256]
    return [
        LanguageCase(path, task, length, TRAINED_LAYERS if task == TRAINING else LAYERS, threads=options.threads)
        for task, length in work
        for path in reversed(PATHS)
    ]


def run(options: Options, command: str, report: Report) -> Result:
    """Times of every case, and what calls of ours consist of."""
    machine.needs(("transformers",), "pip install transformers")
    facts = machine.describe("cpu", "transformers")
    planned = cases(options)
    plan = plan_of(planned, options.rounds)
    found = measure(plan, report)
    # A profiler sees nothing of our short way through one token, so that is left out.
    ours = [case for case in planned if case.path == PATHS[-1] and case.task != DECODING]
    shares = profile(plan, ours, report)
    notes = {"shares": {case.what: shares[case] for case in ours}}
    return found.result("transformers", command, options, facts, notes=notes)


def plan_of(planned: list[LanguageCase], rounds: int | None) -> Plan:
    """In each round every path has its turn at the same work, before the next work."""

    def parties(expected: Mapping[Case, float], rounds: int) -> list[Party]:
        return [Party((case,), rounds, seconds=1.0) for case in expected]

    return Plan(
        cases=planned,
        process=process_of,
        rounds=rounds,
        parties=parties,
        refuse=lambda case, known, processes: _missing(case),
        once=lambda case, seconds: seconds > ONCE,
    )


def process_of(case: Case) -> Process:
    """One for each path: our library keeps freed memory, which would make the others faster than they are alone."""
    assert isinstance(case, LanguageCase)
    return Process(case.path)


def _missing(case: Case) -> str | None:
    needs = isinstance(case, LanguageCase) and case.path == "mambapy"
    return "mambapy is not installed" if needs and importlib.util.find_spec("mambapy") is None else None


def outcome(result: Result) -> Outcome:
    """The result in all its forms."""
    verdicts = checks(result)
    return Outcome(
        result=result,
        summary=f"{result.where} float32, batch 1; {result.turns}{result.busy}.",
        tables=[_times(result), *shares_tables(result, "Where the time goes, adapted"), *checks_tables(verdicts)],
        left_out=left_out(result),
        checks=verdicts,
        of_case=lambda case: _facts(result, case),
    )


def checks(result: Result) -> list[Check]:
    """What is promised, where it was measured."""
    found = []
    for task, length, bound in BOUNDS:
        work = [case for case in result.timings if _is(case, task, length)]
        ratio = _faster(result, work[0], PATHS[0]) if work else None
        tokens = "" if task == DECODING else f" of {length} tokens"
        found.append(worst(f"{task}{tokens}: transformers : tustin", "≥", bound, {"mamba": ratio}))
    return found


def _is(case: Case, task: str, length: int) -> bool:
    return isinstance(case, LanguageCase) and (case.task, case.length) == (task, length)


def _faster(result: Result, case: Case, peer: str) -> Ratio | None:
    """Time of a peer by time of ours, at the work of the case."""
    same = {c.path: t for c, t in result.timings.items() if isinstance(c, LanguageCase) and c.work == case.work}
    return lap_ratio(same[peer], same["tustin"]) if peer in same and "tustin" in same else None


def _facts(result: Result, case: Case) -> dict[str, Any]:
    if not isinstance(case, LanguageCase):
        return {}
    tokens = 1 if case.task == DECODING else case.length
    return {"tokens_per_second": tokens / result.timings[case].median}


def _times(result: Result) -> Table:
    rows = []
    for work in dict.fromkeys(case.work for case in result.timings):
        assert isinstance(work, LanguageCase)
        same = {c.path: t for c, t in result.timings.items() if isinstance(c, LanguageCase) and c.work == work}
        times = [number(1e3 * same[path].median) if path in same else NOTHING for path in PATHS]
        ratios = [_faster(result, work, path) for path in PATHS[:-1]]
        tokens = 1 if work.task == DECODING else work.length
        speed = number(tokens / same["tustin"].median) if "tustin" in same else NOTHING
        calls = ", ".join(str(len(same[path].seconds)) if path in same else NOTHING for path in PATHS)
        rows.append((work.what, *times, speed, *(r.text(1) if r else NOTHING for r in ratios), calls))
    header = ("work", *(f"{path} (ms)" for path in PATHS), "tokens/s", *(f"× {path}" for path in PATHS[:-1]), "calls")
    note = (
        "Medians. Tokens per second are those of tustin. A training step is forward and backward, without optimizer. "
        f"Calls: number of calls of each of the three; a call of more than {ONCE:.0f} s is made once."
    )
    return Table("times", "A Mamba with the shape of mamba-130m", header, rows, note, long_names=True)
