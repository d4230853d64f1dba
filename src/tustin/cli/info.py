"""`tustin info`: what a model costs, by name or from a checkpoint."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..report import terminal
from .arguments import at_least_one, image_size
from .command import Command
from .output import print_json, print_rich

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["COMMAND", "collect"]

DETAILS = """\
MODEL is a name from the list that 'tustin info' prints, a run's folder, or a checkpoint. Operations (FLOPs) are for
one image; a multiplication, an addition, a division and an exponential count as one each. Memory is for float32 and the
native backend: the peak of inference, and what training keeps for the backward pass. docs/models.md explains the
counts.

--json prints model, img_size, tokens, batch_size, discretization, parameters and flops (by part, with the total),
scan_flops (by rule), memory (bytes) and, if the rule is not built in, rule (file, sha256); without MODEL a list of
name, parameters, tokens and flops.

examples:
  tustin info
  tustin info vim_tiny_patch16_224
  tustin info vim_tiny_patch16_224 --discretization zoh --img-size 512x1024 --batch-size 1
  tustin info best.safetensors --json"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", metavar="MODEL", nargs="?", help="name of a model, or a checkpoint (default: list all models)"
    )
    parser.add_argument("--discretization", metavar="NAME", help="discretization rule (default: the model's)")
    parser.add_argument(
        "--img-size",
        metavar="SIZE",
        type=image_size,
        help="224, or HEIGHTxWIDTH such as 160x288 (default: the model's)",
    )
    parser.add_argument("--batch-size", metavar="N", type=at_least_one, default=8, help="images per batch (default: 8)")
    parser.add_argument("--json", action="store_true", help="print the same facts as JSON")


def run(args: argparse.Namespace) -> None:
    if args.model is None:
        models = sorted(map(_summary, _names()), key=lambda model: model["parameters"])
        if args.json:
            print_json({"models": models})
        else:
            print_rich(_list(models))
        return
    facts = collect(args.model, args.discretization, args.img_size, args.batch_size)
    if args.json:
        print_json(facts)
    else:
        print_rich(*_render(facts))


def collect(
    model: str, discretization: str | None = None, img_size: tuple[int, int] | None = None, batch_size: int = 8
) -> dict[str, Any]:
    """The facts that `tustin info` prints; no weights are made for it."""
    import torch

    from ..models import create_model, describe
    from ..models.costs import costs

    changes: dict[str, Any] = {"discretization": discretization, "img_size": img_size}
    given = {name: value for name, value in changes.items() if value is not None}
    rule: dict[str, Any] = {}
    with torch.device("meta"):
        if Path(model).exists():
            told = describe(model)
            config = told["config"]
            if "backbone" in config:
                model, config = f"the backbone of {model}", config["backbone"]
            built: Any = _built(config, given)
            if told["rule"] and "discretization" not in given:
                rule = {"rule": told["rule"]}
        elif model.endswith((".safetensors", ".pth")) or "/" in model:
            raise FileNotFoundError(2, "No such file or directory", model)
        else:
            built = create_model(model, **given)
    unread = built.patch_embed.unread()
    more = rule | ({"unread": unread} if unread else {})
    return {"model": model, **costs(built, batch_size=batch_size).as_facts(), **more}


def _built(config: dict[str, Any], given: dict[str, Any]) -> Any:
    """The model; with a stand-in for a rule of the file that is not here, because its coefficients count nothing."""
    from ..discretize import DISCRETIZATIONS
    from ..models import VisionMamba

    known = config["discretization"] in DISCRETIZATIONS
    built = VisionMamba(**config | ({} if known else {"discretization": "mamba"}) | given)
    built.config |= {"discretization": config["discretization"]} | given
    return built


def _names() -> list[str]:
    import timm

    return list(timm.list_models(module="vim"))


def _summary(name: str) -> dict[str, Any]:
    facts = collect(name)
    totals = {"parameters": facts["parameters"]["total"], "flops": facts["flops"]["total"]}
    return {"name": name, "img_size": facts["img_size"], "tokens": facts["tokens"], **totals}


# --- for people -------------------------------------------------------------------------------------------------------


def _render(facts: dict[str, Any]) -> list[Table | str]:
    """The facts of `collect` as text and tables for rich."""
    height, width = facts["img_size"]
    title = f"{facts['model']}, {facts['discretization']}: images of {height} x {width}, {facts['tokens']} tokens"
    if "rule" in facts:
        title += f"\nrule from the file {facts['rule']['file']!r}, SHA-256 {facts['rule']['sha256']!r}"
    if "unread" in facts:
        title += f"\nWARNING: {facts['unread']}"
    total = facts["flops"]["total"]
    parts = terminal.table(["part", "parameters", "FLOPs", "share"])
    for part, flops in facts["flops"].items():
        if part == "total":
            parts.add_section()
        parts.add_row(part, f"{facts['parameters'][part]:,}", _flops(flops), f"{flops / total:.1%}")
    rules = terminal.table(["scan with", "FLOPs", "of the model"])
    for rule, flops in facts["scan_flops"].items():
        rules.add_row(rule, _flops(flops), f"{flops / (total - facts['flops']['scan'] + flops):.1%}")
    memory = terminal.table([f"memory, {facts['batch_size']} image{'s'[: facts['batch_size'] > 1]}, float32", ""])
    for name, size in facts["memory"].items():
        memory.add_row(name.replace("_", ", "), f"{size / 1e6:,.1f} MB")
    return [title, "", parts, "", rules, "", memory]


def _list(models: list[dict[str, Any]]) -> Table:
    table = terminal.table(["model", "images", "tokens", "parameters", "FLOPs"])
    for model in models:
        size = " x ".join(map(str, model["img_size"]))
        table.add_row(model["name"], size, str(model["tokens"]), f"{model['parameters']:,}", _flops(model["flops"]))
    return table


def _flops(count: int) -> str:
    return f"{count / 1e9:,.3f} G" if count >= 1e8 else f"{count / 1e6:,.3f} M"


COMMAND = Command("info", "show parameters, FLOPs and memory of a model", DETAILS, configure, run, takes_rule=True)
