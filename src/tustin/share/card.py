"""The model card: what a repository says about its model, for people and, in its head, for the hub."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..discretize import DISCRETIZATIONS
from ..report.formats import as_markdown, escape_markdown
from ..report.table import Table
from ..study.results import Plan
from ..support.files import write_text
from ..train.display import metric_text
from ..train.metrics import METRICS

__all__ = ["Card", "write_card"]

PIPELINES = {
    "classification": "image-classification",
    "segmentation": "image-segmentation",
    "detection": "object-detection",
}
SETTINGS = ("epochs", "updates", "seed", "optim.name", "optim.batch_size", "optim.base_lr", "optim.weight_decay")
OF_TRAINING = ("train_loss", "samples_per_second", "train_seconds", "cpu_seconds")


@dataclass(frozen=True)
class Card:
    """What is known about a model."""

    name: str
    told: Mapping[str, Any]
    """What its checkpoint says."""
    plan: Plan | None
    """Of the study that it came from."""
    has_report: bool
    license: str | None

    @property
    def settings(self) -> dict[str, Any]:
        settings = self.told["metadata"].get("config")
        return settings if isinstance(settings, dict) else {}

    @property
    def data(self) -> str | None:
        name = self.settings.get("data.name")
        return None if name is None else str(name)

    @property
    def metrics(self) -> dict[str, float]:
        """Those of the evaluation, by their names in `METRICS`."""
        found = self.told["metadata"]
        return {
            name: float(found[name])
            for name in METRICS
            if name not in OF_TRAINING and isinstance(found.get(name), int | float)
        }


def write_card(path: Path, card: Card) -> None:
    """The card as Markdown, with the head that the hub reads."""
    from huggingface_hub import EvalResult, ModelCardData

    task, rule = card.told["task"], card.told["discretization"]
    results = [
        EvalResult(PIPELINES[task], card.data, card.data, name, round(value, 4), metric_name=METRICS[name].title)
        for name, value in card.metrics.items()
        if card.data
    ]
    head = ModelCardData(
        license=card.license,
        library_name="timm" if task == "classification" else "tustin",
        pipeline_tag=PIPELINES[task],
        tags=[
            "tustin",
            *(["timm"] if task == "classification" else []),
            "state-space-model",
            "vision-mamba",
            f"discretization:{rule}",
        ],
        datasets=[card.data] if card.data and card.data not in ("folder", "masks") else None,
        model_name=card.name.rpartition("/")[2] if results else None,
        eval_results=results or None,
    )
    write_text(path, f"---\n{head.to_yaml()}\n---\n\n" + "\n".join(_body(card)))


def _body(card: Card) -> Iterator[str]:
    told, rule = card.told, card.told["discretization"]
    yield f"# {escape_markdown(card.name)}\n"
    model = told["architecture"] or "Vision Mamba"
    yield (
        f"`{model}` for {told['task']}, a Vision Mamba with the discretization `{rule}`. It was made with "
        "Tustin, which makes the discretization of a state-space model an argument.\n"
    )
    yield from _facts(card)
    if card.metrics:
        rows = [
            (METRICS[name].title, metric_text(name, value).removeprefix(f"{METRICS[name].title} "))
            for name, value in card.metrics.items()
        ]
        yield as_markdown(Table("metrics", "Metrics", ("metric", "value"), rows, "On the held-out data."))
    yield from _use(card)
    yield from _of_study(card)


def _facts(card: Card) -> Iterator[str]:
    told, settings = card.told, card.settings
    rule = DISCRETIZATIONS[told["discretization"]]
    rows: list[tuple[str, str]] = [("rule", f"{rule.name}: α = {rule.alpha}, β = {', '.join(rule.betas)}")]
    if told["rule"]:
        rows.append(("file of the rule", f"{told['rule']['file']}, SHA-256 {told['rule']['sha256']}"))
    rows.append(("data", card.data or "not recorded"))
    if told["class_names"]:
        names = told["class_names"]
        rows.append(("classes", f"{len(names)}: {', '.join(names[:10])}{', …' if len(names) > 10 else ''}"))
    if "input_size" in told["data"]:
        rows.append(("images", " x ".join(map(str, told["data"]["input_size"]))))
    overruled = "epochs" if settings.get("updates") is not None else None
    rows += [(name, str(settings[name])) for name in SETTINGS if settings.get(name) is not None and name != overruled]
    if told["tustin"]:
        rows.append(("made with", f"tustin {told['tustin']}"))
    yield as_markdown(Table("model", "Model", ("", "value"), rows, words=frozenset(["value"])))


def _use(card: Card) -> Iterator[str]:
    yield "## Use\n"
    if card.told["rule"]:
        yield (
            f"The rule is not built in: it is code, in `{card.told['rule']['file']}`. Nothing downloads or runs it by "
            "itself. Get the file, read it, and import it first:\n"
        )
        file = card.told["rule"]["file"]
        yield f"```python\nimport tustin\n\ntustin.discretize.import_rules({file!r})\n```\n"
    yield f'```python\nimport tustin\n\nmodel = tustin.load("hf-hub:{card.name}")\n```\n'
    if card.told["task"] == "classification" and card.told["architecture"]:
        yield "Or with timm:\n"
        create = f'model = timm.create_model("hf-hub:{card.name}", pretrained=True)'
        yield f"```python\nimport timm\nimport tustin  # timm finds the model in it\n\n{create}\n```\n"


def _of_study(card: Card) -> Iterator[str]:
    plan = card.plan
    if plan is None:
        return
    yield "## Study\n"
    rules = ", ".join(f"`{name}`" for name in plan.discretizations)
    yield (
        f"The model is one run of a study on `{plan.recipe}` that compares {rules} with {len(plan.seeds)} seeds each, "
        f"by {METRICS[plan.metric].title}, with `{plan.baseline}` as the baseline."
        + (" [study.md](study.md) is its report.\n" if card.has_report else "\n")
    )
