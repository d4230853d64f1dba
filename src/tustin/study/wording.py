"""The conclusions of a study in sentences: what it shows, and what it cannot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ..report.table import flat, signed
from ..train.metrics import Metric
from .signflips import holm, smallest_p
from .stats import CONFIDENCE, Analysis, Comparison, Verdict
from .subject import data_name

__all__ = ["difference_unit", "digits", "headline", "limits", "missing_runs", "title"]

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def title(analysis: Analysis) -> str:
    """The page's: how many rules, and on which data."""
    return f"{_count(len(analysis.plan.discretizations), 'discretization').capitalize()} on {data_name(analysis.plan)}"


def headline(analysis: Analysis) -> list[str]:
    """What was compared, and what can be concluded."""
    plan, title = analysis.plan, analysis.metric.title
    discretizations, seeds = len(plan.discretizations), len(plan.seeds)
    with_seeds = f"with {_so_far(analysis)}{_count(seeds, 'seed')}" + (" each" if discretizations > 1 < seeds else "")
    if discretizations == 1:
        first = f"One discretization, {plan.discretizations[0]}, was trained on {data_name(plan)} {with_seeds}."
        return [first, "There is nothing to compare it with."]
    first = (
        f"{_count(discretizations, 'discretization').capitalize()} were compared on {data_name(plan)} by {title}, "
        f"{with_seeds} and {plan.baseline} as the baseline."
    )
    return [first, *_conclusions(analysis)]


def _so_far(analysis: Analysis) -> str:
    """How many of the planned seeds every rule has a run of, as long as runs are missing."""
    if not analysis.study.missing:
        return ""
    missing = Counter(rule for rule, _ in analysis.study.missing)
    ended = sorted({len(analysis.plan.seeds) - missing[rule] for rule in analysis.plan.discretizations})
    if ended[0] == 0 < ended[-1]:
        return f"up to {_word(ended[-1])} of "
    return f"{_joined([_word(number) for number in dict.fromkeys((ended[0], ended[-1]))], 'to')} of "


def _conclusions(analysis: Analysis) -> Iterator[str]:
    plan = analysis.plan
    bound = f"{plan.threshold:.{digits(analysis.metric)}f} {difference_unit(analysis.metric)}".strip()
    by_verdict = {verdict: [c for c in analysis.comparisons if c.verdict == verdict] for verdict in Verdict}
    parts = []
    if better := by_verdict[Verdict.ABOVE]:
        parts.append(f"{_named(better, analysis)} significantly better than {plan.baseline}, by {bound} or more")
    if small := by_verdict[Verdict.SMALL]:
        parts.append(f"{_named(small, analysis)} significantly better than {plan.baseline}, but by less than {bound}")
    if worse := by_verdict[Verdict.WORSE]:
        parts.append(f"{_named(worse, analysis)} significantly worse than {plan.baseline}")
    if equal := by_verdict[Verdict.EQUAL] + by_verdict[Verdict.EMPTY]:
        parts.append(f"{_named(equal, analysis)} practically equal to {plan.baseline}, within ±{bound}")
    if not_shown := by_verdict[Verdict.NOT_SHOWN]:
        names = _joined([comparison.discretization for comparison in not_shown])
        parts.append(f"no difference from {plan.baseline} was shown for {names}")
    if parts:
        text = "; ".join(parts)
        yield f"{text[0].upper() if parts[0].startswith('no ') else text[0]}{text[1:]}."
    yield from _about_the_state(analysis)
    if open_ones := by_verdict[Verdict.OPEN]:
        names = _joined([comparison.discretization for comparison in open_ones])
        yield f"Nothing can be concluded about {names if parts else 'differences between them'}."


def _about_the_state(analysis: Analysis) -> Iterator[str]:
    """What the state is worth, and whether that leaves room for a difference."""
    control, decimals, unit = analysis.control, digits(analysis.metric), difference_unit(analysis.metric)
    if control is None or control.worth is None:
        return
    worth = control.worth
    interval = (
        ""
        if worth.low is None or worth.high is None
        else f", {CONFIDENCE:.0%} interval {signed(worth.low, decimals)} to {signed(worth.high, decimals)}"
    )
    compared = f"({analysis.plan.baseline} against {control.name}{interval})"
    yield f"The state of the scan is worth {signed(worth.mean, decimals)} {unit}".rstrip() + f" {compared}."
    if control.too_little:
        least = f"{control.smallest:.{decimals}f} {unit}".rstrip()
        empty = [c.discretization for c in analysis.comparisons if c.verdict == Verdict.EMPTY]
        about = f"the equality of {_joined(empty)} to {analysis.plan.baseline} says little" if empty else ""
        yield f"That is less than {least}, three times the threshold, so the rules have little room to differ" + (
            f": {about}." if about else "."
        )


def _named(comparisons: Sequence[Comparison], analysis: Analysis) -> str:
    """The rules, the best first, with their gains, and the verb."""
    ranked = sorted(comparisons, key=lambda c: -c.gain.mean if c.gain else 0.0)
    names = [f"{c.discretization} ({signed(c.gain.mean, digits(analysis.metric))})" for c in ranked if c.gain]
    return f"{_joined(names)} {'is' if len(names) == 1 else 'are'}"


def limits(analysis: Analysis) -> list[str]:
    """What cannot be concluded and why: one sentence each."""
    return [*_of_runs(analysis), *_of_tests(analysis), *_of_environments(analysis)]


def missing_runs(analysis: Analysis) -> list[str]:
    """One sentence if runs are missing."""
    missing, total = len(analysis.study.missing), len(analysis.plan.runs())
    return [f"{missing} of {total} runs {_have(missing)} not finished, so the result may change."] if missing else []


def _of_runs(analysis: Analysis) -> Iterator[str]:
    study = analysis.study
    yield from missing_runs(analysis)
    for reason in study.damaged.values():
        yield f"A result is not counted: {reason}."
    for summary in analysis.discretizations:
        if summary.failed == summary.planned:
            yield f"{summary.discretization} failed with every seed."
        elif summary.failed:
            yield (
                f"{summary.discretization} failed in {summary.failed} of {summary.planned} runs; its numbers are "
                "from the remaining seeds, which may be the easy ones."
            )


def _of_tests(analysis: Analysis) -> Iterator[str]:
    plan = analysis.plan
    if len(plan.discretizations) == 1:
        yield "With one discretization there is no difference to test."
    elif plan.baseline not in plan.discretizations:
        yield f"The baseline {plan.baseline} is not among the discretizations, so nothing is paired with it."
    tested = [c for c in analysis.comparisons if c.pairs]
    alone = [c.discretization for c in analysis.comparisons if not c.pairs]
    if alone and plan.baseline in plan.discretizations:
        yield f"No seed has a result of both {plan.baseline} and {_joined(alone, 'or')}."
    floors = holm([smallest_p(c.pairs) for c in tested])
    for pairs in sorted({c.pairs for c in tested if c.verdict == Verdict.OPEN}):
        group = [(c.discretization, floor) for c, floor in zip(tested, floors, strict=True) if c.pairs == pairs]
        yield (
            f"{_count(pairs, 'pair').capitalize()} of runs cannot tell a difference from chance for "
            f"{_joined([discretization for discretization, _ in group])}: even if all differences were gains, p would "
            f"be {group[0][1]:.2g} after correction, above the level of {plan.level:g}; more seeds would help."
        )
    for c in tested:
        if c.pairs > 1 and c.gain and c.gain.std == 0:
            same = "no gain or loss" if c.gain.mean == 0 else "the same gain"
            yield f"{c.discretization} has {same} with every seed: without any spread there is no effect size."
    if analysis.control is None and any(c.verdict == Verdict.EQUAL for c in tested):
        yield "The study has no control, so it is unknown what the state is worth, and whether equality means anything."
    if any(summary.done == 1 for summary in analysis.discretizations):
        yield "The spread between seeds is unknown where there is only one run."


def _of_environments(analysis: Analysis) -> Iterator[str]:
    runs = [flat({**result.environment, "rule": None}) for result in analysis.study.results if result.environment]
    names = dict.fromkeys(name for run in runs for name in run)
    differing = [name for name in names if len({str(run.get(name)) for run in runs}) > 1]
    if differing:
        yield (
            f"Not all runs had the same environment: they differ in {_joined(differing)}. Times may not be comparable, "
            "and the environment may cause a difference."
        )


# --- words ------------------------------------------------------------------------------------------------------------


def digits(metric: Metric) -> int:
    """Decimals with which a metric is shown."""
    return {"%": 2, "images/s": 0, "s": 1}.get(metric.unit, 4)


def difference_unit(metric: Metric) -> str:
    """Of a difference between two values of the metric: percentages differ by points."""
    return "points" if metric.unit == "%" else metric.unit


def _joined(names: Sequence[str], word: str = "and") -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}"


def _count(number: int, noun: str) -> str:
    return f"{_word(number)} {noun}{'s' if number != 1 else ''}"


def _word(number: int) -> str:
    return _NUMBERS[number] if number < len(_NUMBERS) else str(number)


def _have(number: int) -> str:
    return "has" if number == 1 else "have"
