"""The tables of a study."""

from __future__ import annotations

from typing import Any

from ..report.paper_figures import PAPER, SOURCE, PaperResults
from ..report.table import NOTHING, Table, flat, signed
from ..train.metrics import METRICS, Metric
from ..train.run import FREE
from .signflips import POWER
from .stats import CONFIDENCE, Analysis, Comparison, Spread, numbers_of
from .wording import difference_unit, digits

__all__ = [
    "failures_table",
    "paper_table",
    "results_table",
    "runs_table",
    "settings_table",
    "short_table",
    "significance_table",
]

MOST_METRICS = 4
"""Columns of metrics in a table that is meant to be read; the CSV files hold all."""


def results_table(analysis: Analysis) -> Table:
    """Table 1 of the paper, over the seeds."""
    metrics = shown_metrics(analysis)
    best = _Best(analysis.plan.by_updates)
    counted = any(summary.done != summary.planned for summary in analysis.discretizations)
    header = ["discretization", *(["runs"] if counted else []), *(_title(metric) for metric in metrics), best.title]
    rows = []
    for summary in analysis.discretizations:
        numbers = summary.numbers
        cells = [summary.discretization]
        if counted:
            cells.append(
                str(summary.done) if summary.done == summary.planned else f"{summary.done} of {summary.planned}"
            )
        cells += [_plus_minus(numbers.get(metric.name), digits(metric)) for metric in metrics]
        cells.append(_plus_minus(numbers.get(best.name), best.decimals))
        rows.append(tuple(cells))
    seeds = len(analysis.plan.seeds)
    runs = "the runs" if counted else f"{seeds} seeds"
    over = "One seed." if seeds == 1 else f"Mean ± standard deviation over {runs}."
    return Table(
        "results",
        "Results",
        tuple(header),
        rows,
        f"{over} Metrics are those of the {best.title} of each run, on the held-out data.",
    )


def significance_table(analysis: Analysis) -> Table:
    """Every rule against the baseline, with its verdict."""
    plan, metric = analysis.plan, analysis.metric
    unit = difference_unit(metric)
    gain = f"gain ({unit})" if unit else "gain"
    direction = "" if metric.higher_is_better else f" Lower is better for {metric.title}: a gain is a decrease."
    return Table(
        "significance",
        f"Is it better than {plan.baseline}?",
        ("discretization", "verdict", gain, f"{CONFIDENCE:.0%} interval", "n", "d", "p", "p equal", "detects"),
        [_comparison_row(comparison, digits(metric)) for comparison in analysis.comparisons],
        f"Gain: mean gain in {metric.title} over {plan.baseline} with the same seed. Interval: by bootstrap, too "
        "narrow with few pairs. n: pairs of runs. d: Cohen's d of the paired differences. p: one-sided sign-flip test "
        "for a gain. p equal: two such tests that the difference is smaller than the threshold in both directions. "
        "Both p-values have Holm's correction for the number of discretizations. Detects: the gain that would be found "
        f"with a probability of {POWER:.0%}. Level {plan.level:g}, threshold {plan.threshold:g}"
        f"{f' {unit}' if unit else ''}. “Not shown” does not mean equal.{_state(analysis)}{direction}",
        frozenset({"verdict"}),
    )


def short_table(analysis: Analysis) -> Table:
    """One table for a page with little room: mean, gain and verdict of every rule, the baseline first."""
    plan, metric = analysis.plan, analysis.metric
    unit = difference_unit(metric)
    gained = f"gain ({unit})" if unit else "gain"
    means = {summary.discretization: summary.numbers.get(metric.name) for summary in analysis.discretizations}
    rows = [(plan.baseline, _mean(means.get(plan.baseline), metric), NOTHING, NOTHING, "baseline")]
    for comparison in analysis.comparisons:
        name, verdict, gain, interval, *_ = _comparison_row(comparison, digits(metric))
        rows.append((name, _mean(means.get(name), metric), gain, interval, verdict))
    return Table(
        "short",
        "Results in short",
        ("discretization", _title(metric), gained, f"{CONFIDENCE:.0%} interval", "verdict"),
        rows,
        f"Means over the seeds. Gain: over {plan.baseline} with the same seed. “Not shown” does not mean equal.",
        frozenset({"verdict"}),
    )


def _mean(spread: Spread | None, metric: Metric) -> str:
    return NOTHING if spread is None else f"{spread.mean:.{digits(metric)}f}"


def _state(analysis: Analysis) -> str:
    """What the state is worth, for the note below the gains."""
    control = analysis.control
    if control is None or control.worth is None:
        return ""
    decimals, unit = digits(analysis.metric), difference_unit(analysis.metric)
    worth = f"{signed(control.worth.mean, decimals)} {unit}".rstrip()
    interval = _interval(control.worth, decimals)
    shown = "" if interval == NOTHING else f", {interval}"
    return (
        f" The state of the scan is worth {worth}{shown} ({analysis.plan.baseline} against {control.name}, "
        f"{len(control.seeds)} pairs). Below {control.smallest:g}, a verdict of equality is marked as empty."
    )


def _comparison_row(comparison: Comparison, decimals: int) -> tuple[str, ...]:
    gain = comparison.gain
    return (
        comparison.discretization,
        str(comparison.verdict),
        signed(gain.mean, decimals) if gain else NOTHING,
        _interval(gain, decimals),
        str(comparison.pairs),
        NOTHING if comparison.cohens_d is None else f"{comparison.cohens_d:.2f}".replace("-", "−"),
        _p(comparison.p_holm),
        _p(comparison.p_equal_holm),
        NOTHING if comparison.detectable is None else f"{comparison.detectable:.{decimals}f}",
    )


def paper_table(analysis: Analysis) -> Table | None:
    """The paper's numbers for the same recipe beside ours, if it prints any."""
    paper = PAPER.get(analysis.plan.recipe)
    if paper is None:
        return None
    first = next(iter(paper.rows.values()))
    metrics = [METRICS[name] for name in first.metrics if name in METRICS]
    columns: dict[str, dict[str, str]] = {}
    if first.training_time:
        columns["paper: training time (d-h:min)"] = {m: row.training_time or "" for m, row in paper.rows.items()}
        columns["paper: best epoch"] = {m: str(row.best_epoch) for m, row in paper.rows.items()}
    for metric in metrics:
        columns[f"paper: {_title(metric)}"] = {m: f"{row.metrics[metric.name]:g}" for m, row in paper.rows.items()}
    if paper.gains:
        columns["paper, ten seeds: gain (points)"] = {m: signed(told.gain, 2) for m, told in paper.gains.items()}
        columns["paper, ten seeds: p"] = {m: told.p for m, told in paper.gains.items()}
        columns["paper: change in throughput (%)"] = {
            m: signed(told.throughput, 2) for m, told in paper.gains.items() if told.throughput is not None
        }
    columns |= {f"ours: {name}": cells for name, cells in _our_columns(analysis, metrics[0]).items()}
    discretizations = list(dict.fromkeys([*paper.rows, *analysis.plan.discretizations]))
    return Table(
        "paper",
        "Comparison with the paper",
        ("discretization", *columns),
        [
            (discretization, *(cells.get(discretization, NOTHING) for cells in columns.values()))
            for discretization in discretizations
        ],
        _paper_note(analysis, paper),
    )


def _our_columns(analysis: Analysis, metric: Metric) -> dict[str, dict[str, str]]:
    values = {
        s.discretization: _plus_minus(s.numbers.get(metric.name), digits(metric)) for s in analysis.discretizations
    }
    columns = {_title(metric): values}
    if metric == analysis.metric:
        columns[f"gain ({difference_unit(metric)})"] = {
            c.discretization: signed(c.gain.mean, digits(metric)) for c in analysis.comparisons if c.gain
        }
    return columns


def _paper_note(analysis: Analysis, paper: PaperResults) -> str:
    changed = [name for name in analysis.plan.settings if name not in FREE]
    parts = [
        f"Columns marked “paper” are printed in {SOURCE} ({paper.where}): its code, on {paper.hardware}. Nothing in "
        "them was measured here, and times are not comparable with ours."
    ]
    if changed:
        parts.append(f"This study also changed settings of the recipe: {', '.join(changed)}.")
    return " ".join([*parts, paper.remark] if paper.remark else parts)


def failures_table(analysis: Analysis) -> Table | None:
    """The runs that failed, and where they went wrong."""
    failed = [result for result in analysis.study.results if result.status == "failed"]
    if not failed:
        return None
    return Table(
        "failures",
        "Failed runs",
        ("discretization", "seed", "what happened", "diagnosis"),
        [(run.discretization, str(run.seed), run.error or "unknown", _diagnosis(run.diagnosis)) for run in failed],
        words=frozenset({"what happened", "diagnosis"}),
    )


def _diagnosis(facts: dict[str, Any] | None) -> str:
    """The first tensor that was not finite, and the layer whose steps are the least stable."""
    if not facts:
        return NOTHING
    parts = []
    if first := facts.get("first_non_finite"):
        parts.append(
            f"first non-finite: {first['layer']}, {first['tensor']}, {first['count']} of {first['total']} values"
        )
    worst = max(facts.get("layers", []), key=lambda layer: layer["unstable"], default=None)
    if worst and worst["unstable"]:
        reach = "no z is finite" if worst["z_range"] is None else "z from {:.3g} to {:.3g}".format(*worst["z_range"])
        low, high = (f"{float(bound):.4g}" for bound in facts["stable"])
        parts.append(
            f"{worst['layer']}, {worst['direction']}: {reach}, {worst['unstable']:.0%} of the steps outside the rule's "
            f"stability interval, {low} to {high}".replace("-", "−")
        )
    return "; ".join(parts) or NOTHING


def runs_table(analysis: Analysis) -> Table:
    """Every run of the plan."""
    metrics, best = shown_metrics(analysis), _Best(analysis.plan.by_updates)
    results = {(result.discretization, result.seed): result for result in analysis.study.results}
    rows = []
    for discretization, seed in analysis.plan.runs():
        result = results.get((discretization, seed))
        numbers = numbers_of(result) if result and result.status == "done" else {}
        cells = [_one(numbers.get(metric.name), digits(metric)) for metric in metrics]
        cells.append(f"{numbers[best.name]:g}" if best.name in numbers else NOTHING)
        cells += [_one(numbers.get(name), 1) for name in ("cpu_seconds", "train_seconds")]
        rows.append((discretization, str(seed), result.status if result else "missing", *cells))
    header = (
        "discretization",
        "seed",
        "status",
        *(_title(metric) for metric in metrics),
        best.title,
        "CPU time (s)",
        "wall time (s)",
    )
    return Table("runs", "All runs", header, rows, words=frozenset({"status"}))


def settings_table(name: str, title: str, values: dict[str, Any]) -> Table:
    """Names and values, nested ones by their dotted names."""
    rows = [(key, _value(value)) for key, value in flat(values).items()]
    return Table(name, title, ("name", "value"), rows, words=frozenset({"value"}))


# --- cells ------------------------------------------------------------------------------------------------------------


def shown_metrics(analysis: Analysis) -> list[Metric]:
    """The metric of the study first, then others in its unit."""
    measured = {name for summary in analysis.discretizations for name in summary.numbers}
    first = analysis.metric
    others = [m for m in METRICS.values() if m.name in measured and m.unit == first.unit and m != first]
    return [first, *others][:MOST_METRICS]


def _title(metric: Metric) -> str:
    return f"{metric.title} ({metric.unit})" if metric.unit else metric.title


class _Best:
    """When a run was best, in what its plan counts."""

    def __init__(self, by_updates: bool) -> None:
        self.name, self.title = ("best_update", "best update") if by_updates else ("best_epoch", "best epoch")
        self.decimals = 0 if by_updates else 1


def _plus_minus(spread: Spread | None, decimals: int) -> str:
    if spread is None:
        return NOTHING
    mean = f"{spread.mean:.{decimals}f}"
    return mean if spread.std is None else f"{mean} ± {spread.std:.{decimals}f}"


def _one(value: float | None, decimals: int) -> str:
    return NOTHING if value is None else f"{value:.{decimals}f}"


def _interval(spread: Spread | None, decimals: int) -> str:
    if spread is None or spread.low is None or spread.high is None:
        return NOTHING
    return f"{signed(spread.low, decimals)} to {signed(spread.high, decimals)}"


def _p(p: float | None) -> str:
    """Two digits that count; 1/1024 must not look like 0.001."""
    if p is None:
        return NOTHING
    return f"{p:.2g}" if p < 0.1 else f"{p:.2f}"


def _value(value: Any) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_value, value)) or NOTHING
    return str(value)
