"""Whatever is written down rule by rule is there for every built-in rule; what is missing is said line by line."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.discretize import judge
from tustin import Discretization, discretize
from tustin.bench.machine import MULTIPLICATIONS
from tustin.discretize import BUILT_IN, FUSED
from tustin.models.costs import COEFFICIENT_OPERATIONS

ROOT = Path(__file__).parents[2]


def unwritten(rules: Sequence[Discretization]) -> list[str]:
    """What is still to be written for these rules: where, and what."""
    slow = set(BUILT_IN) - set(FUSED)
    lists = _wrong_lists([rule.name for rule in rules if rule not in slow])
    return [*lists, *(line for rule in rules for line in _missing_entries(rule))]


def _wrong_lists(names: Sequence[str]) -> list[str]:
    """The lists of a fused backend that do not have exactly these rules, in this order."""
    in_cpp = re.search(
        r"#define TUSTIN_DISCRETIZATIONS\(X\)((?:[^\n]*\\\n)*[^\n]*)", _text("src/tustin/ops/csrc/scan.h")
    )
    assert in_cpp is not None
    triton = _text("src/tustin/ops/scan/triton_discretizations.py")
    lists = {
        "src/tustin/ops/csrc/scan.h: TUSTIN_DISCRETIZATIONS(X)": re.findall(r"X\((\w+)\)", in_cpp[1]),
        "src/tustin/ops/scan/triton_discretizations.py: DISCRETIZATIONS": re.findall(
            r'^ +"(\w+)": (?:Functions\(|_HOLD\.)', triton, re.M
        ),
        "tests/discretize/judge.py: ALPHA and BETA": [
            name for name in names if name in judge.ALPHA.keys() & judge.BETA
        ],
    }
    return [f"{where} should have {', '.join(names)}" for where, found in lists.items() if found != list(names)]


def _missing_entries(rule: Discretization) -> list[str]:
    name, slow = rule.name, set(BUILT_IN) - set(FUSED)
    operations = COEFFICIENT_OPERATIONS.get(name, "operations for α and β")
    multiplications = MULTIPLICATIONS.get(name, "multiplications")
    derivatives = _text("docs/math.md").partition("## Partial derivatives")[2]
    wanted = {
        "src/tustin/models/costs.py": (
            name in COEFFICIENT_OPERATIONS,
            f'COEFFICIENT_OPERATIONS needs "{name}": <{operations}>,  # which, of {rule.alpha} and {rule.betas[0]}',
        ),
        "src/tustin/bench/machine.py": (
            name in MULTIPLICATIONS or rule in slow,
            f'MULTIPLICATIONS needs "{name}": <{multiplications} of one update in C++>,  # which; also DIVISIONS',
        ),
        "docs/models.md": (
            f"\n| {name} | {operations} | " in _text("docs/models.md"),
            f"the table of operations needs the row | {name} | {operations} | which |",
        ),
        "docs/performance.md": (
            f"\n| `{name}` | " in _text("docs/performance.md") or rule in slow,
            f"the table of multiplications needs the row | `{name}` | z | function of z | β | B·u | recurrence "
            f"| output | {multiplications} | other operations |",
        ),
        "docs/math.md": (
            re.search(rf"^\| ({name}|{name.rstrip('0123456789')})\b", derivatives, re.M) is not None,
            f"derive {name}, and the table of partial derivatives needs the row | {name} | ∂α/∂z | ∂β/∂z | ∂β/∂Δ |",
        ),
    }
    return [f"{where}: {what}" for where, (there, what) in wanted.items() if not there]


def _text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def test_every_built_in_rule_is_everywhere() -> None:
    missing = unwritten(BUILT_IN)
    assert not missing, "\n".join(["still to be written:", *missing])


def test_a_new_rule_is_asked_for_everywhere() -> None:
    """The control: nothing is known of another rule, and each place is named with what goes there."""
    new = replace(BUILT_IN[0], name="new_rule")
    said = unwritten([*BUILT_IN, new])
    assert len(said) == 8
    assert all("new_rule" in line for line in said)
    files = {line.split(":")[0] for line in said}
    assert all((ROOT / file).exists() for file in files)
    assert len(files) == 8


def test_every_rule_in_the_folder_is_built_in() -> None:
    """A rule in a file of `discretize` that is not in BUILT_IN would be unreachable."""
    folder = Path(str(discretize.__file__)).parent
    found = {
        match[1]
        for file in folder.glob("*.py")
        for match in re.finditer(r'^    name="(\w+)",$', file.read_text(encoding="utf-8"), re.M)
    }
    missing = found - {rule.name for rule in BUILT_IN}
    assert not missing, f"src/tustin/discretize/__init__.py: BUILT_IN needs {', '.join(sorted(missing))}"
