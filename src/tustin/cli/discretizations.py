"""`tustin discretizations`: every rule and what it declares about itself."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..report import terminal
from .arguments import discretization, listed, picture, web_page
from .command import Command
from .output import print_json, print_rich

if TYPE_CHECKING:
    from rich.table import Table

    from ..discretize import Discretization

__all__ = ["COMMAND", "facts"]

DETAILS = """\
--json prints {"tustin": version, "discretizations": [...]}: name, alpha, betas (one formula per input sample, newest
first), samples, order, held_order, stable ([low, high] for z), exact_equilibrium, source. JSON has no infinity, so
infinite numbers are the strings "inf" and "-inf", which Python's float() reads. A held_order of "inf" means exact.

examples:
  tustin discretizations
  tustin discretizations bil,true_bil
  tustin discretizations --plot discretizations.png
  tustin discretizations --html rules.html     # sliders for A and Δ, in a browser
  tustin discretizations --json --plot discretizations.svg > discretizations.json"""

LEGEND = """\
One step of h' = A·h + B·u is h_k = α·h_{k−1} + β·B·u_k, where z = Δ·A.
φ1(z) = (e^z − 1)/z, φ2(z) = (φ1(z) − 1)/z, φ3(z) = (φ2(z) − 1/2)/z, and so on.
order: the power of Δ with which the error falls, for a smooth input and for an
input that is constant over each step; 0 means that the error does not fall.
exact equilibrium: for a constant input, the state settles at the same value as
in the continuous system."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "rules", metavar="A,B", nargs="?", type=listed(discretization), help="rules to show (default: all)"
    )
    parser.add_argument("--json", action="store_true", help="print the same facts as JSON")
    parser.add_argument("--plot", metavar="FILE", type=picture, help="also plot the rules to FILE (.png, .svg or .pdf)")
    parser.add_argument("--html", metavar="FILE", type=web_page, help="also write an interactive page to FILE (.html)")


def run(args: argparse.Namespace) -> None:
    from ..discretize import DISCRETIZATIONS

    rules = [DISCRETIZATIONS[name] for name in dict.fromkeys(args.rules or DISCRETIZATIONS)]
    if args.plot:  # first: if it cannot be written, the error stands alone
        from ..report import rules_picture

        rules_picture.save(args.plot, rules)
    if args.html:
        from ..report import rules_page

        rules_page.save(args.html, rules)
        if left_out := [rule.name for rule in rules if rule not in rules_page.drawable(rules)]:
            print(f"tustin: the page shows built-in rules only, not {', '.join(left_out)}", file=sys.stderr)
    if args.json:
        print_json({"tustin": __version__, "discretizations": [facts(rule) for rule in rules]})
    else:
        print_rich(_table(rules), "", LEGEND)
    for written in filter(None, (args.plot, args.html)):
        print(f"tustin: wrote {written}", file=sys.stderr)


def facts(rule: Discretization) -> dict[str, Any]:
    """What a rule declares about itself, as plain data."""
    return {
        "name": rule.name,
        "alpha": rule.alpha,
        "betas": list(rule.betas),
        "samples": rule.taps,
        "order": rule.order,
        "held_order": rule.held_order,
        "stable": list(rule.stable),
        "exact_equilibrium": rule.exact_equilibrium,
        "source": rule.source,
    }


# --- for people -------------------------------------------------------------------------------------------------------


def _table(rules: list[Discretization]) -> Table:
    table = terminal.table(list(_COLUMNS), words=_COLUMNS.keys() - {"name"})
    for rule in rules:
        table.add_row(*(describe(rule) for describe in _COLUMNS.values()))
    return table


def _interval(low: float, high: float) -> str:
    left = "(−∞" if math.isinf(low) else f"[{low:.4g}"
    right = "∞)" if math.isinf(high) else f"{high:.4g}]"
    return f"{left}, {right}".replace("-", "−")


def _betas(rule: Discretization) -> str:
    if rule.taps == 1:
        return rule.betas[0]
    return "\n".join(f"u_{f'{{k−{j}}}' if j else 'k'}: {formula}" for j, formula in enumerate(rule.betas))


_COLUMNS: dict[str, Callable[[Discretization], str]] = {
    "name": lambda rule: rule.name,
    "α": lambda rule: rule.alpha,
    "β": _betas,
    "samples": lambda rule: str(rule.taps),
    "order,\nsmooth\ninput": lambda rule: str(rule.order),
    "order,\nheld\ninput": lambda rule: "exact" if math.isinf(rule.held_order) else f"{rule.held_order:g}",
    "stable\nfor z in": lambda rule: _interval(*rule.stable),
    "exact\nequi-\nlibrium": lambda rule: "yes" if rule.exact_equilibrium else "no",
    "source": lambda rule: rule.source,
}

COMMAND = Command(
    "discretizations", "list the discretization rules and what they do", DETAILS, configure, run, takes_rule=True
)
