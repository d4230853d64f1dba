"""The result of a benchmark of models as plain data, and back."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from .. import __version__
from .inference import Options, Result
from .measuring import Measured
from .models import Candidate, Case
from .pairing import Ratio, Standing


def p95(seconds: Sequence[float]) -> float:
    """What 95 of 100 calls do not exceed."""
    return seconds[0] if len(seconds) == 1 else statistics.quantiles(seconds, n=20, method="inclusive")[-1]


def as_facts(result: Result) -> dict[str, Any]:
    """The result as plain data: what `--json` writes, and `from_facts` reads."""
    return {
        "tustin": __version__,
        "benchmark": "train" if result.options.training else "inference",
        "command": result.command,
        "date": result.date,
        "options": asdict(result.options),
        "machine": result.machine,
        "rounds": result.measured.rounds,
        "cases": [_case_facts(result, case) for case in result.measured.seconds],
        "skipped": case_reasons(result.measured),
        "fastest": {batch: _standing_facts(result.standing(batch)) for batch in result.batch_sizes},
        "noise": {batch: result.noise(batch) for batch in result.batch_sizes},
        "scenarios": result.scenarios(),
        "checks": [check.told() for check in result.checks()],
    }


def case_reasons(measured: Measured) -> list[dict[str, Any]]:
    return [asdict(case) | {"because": reason} for case, reason in measured.skipped.items()]


def case_facts(case: Case, measured: Measured) -> dict[str, Any]:
    """What was measured of one case, the calls of every round included."""
    rounds = measured.seconds[case]
    calls = [seconds for calls in rounds.values() for seconds in calls]
    middle = statistics.median(calls)
    return asdict(case) | {
        "name": case.candidate.name,
        "milliseconds_per_image": {"median": 1e3 * middle / case.batch, "p95": 1e3 * p95(calls) / case.batch},
        "images_per_second": case.batch / middle,
        "peak_bytes": measured.peaks.get(case),
        "seconds": {str(number): calls for number, calls in rounds.items()},
    }


def _case_facts(result: Result, case: Case) -> dict[str, Any]:
    ratio = result.to_baseline(case)
    return case_facts(case, result.measured) | {"time_by_baseline": ratio_facts(ratio) if ratio else None}


def ratio_facts(ratio: Ratio) -> dict[str, float]:
    low, high = ratio.interval()
    return {"median": ratio.median, "low": low, "high": high}


def _standing_facts(standing: Standing) -> dict[str, Any]:
    margin = ratio_facts(standing.margin) if standing.margin else None
    return {"fastest": standing.fastest, "tied": standing.tied, "runner_up": standing.runner_up, "margin": margin}


def from_facts(facts: Mapping[str, Any]) -> Result:
    """The result that `as_facts` was given; ValueError if it is not one."""
    try:
        told = dict(facts["options"])
        options = Options(**told | {name: tuple(told[name]) for name in ("discretizations", "batch_sizes")})
        measured = Measured(rounds=facts["rounds"])
        for entry in facts["cases"]:
            case = _case_from(entry)
            rounds = entry["seconds"].items()
            measured.seconds[case] = {int(number): [float(call) for call in calls] for number, calls in rounds}
            if entry["peak_bytes"] is not None:
                measured.peaks[case] = int(entry["peak_bytes"])
        measured.skipped = {_case_from(entry): str(entry["because"]) for entry in facts["skipped"]}
        return Result(options, facts["command"], facts["date"], dict(facts["machine"]), measured)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it does not hold what a result must: {type(error).__name__}: {error}") from error


def _case_from(entry: Mapping[str, Any]) -> Case:
    names = ("batch", "img_size", "training", "device", "threads")
    return Case(Candidate(**entry["candidate"]), **{name: entry[name] for name in names})
