"""`--import FILE`: a rule of one's own in every command that takes one, and never without being asked for."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import tustin
from tests import own_rule
from tests.bench.results import CELL
from tests.cli.commands import refused, told
from tests.train.small import SMALL
from tustin import DISCRETIZATIONS
from tustin.bench.worker import Worker, first_calls
from tustin.cli import main
from tustin.discretize import import_rules
from tustin.models import CheckpointError

pytestmark = [
    pytest.mark.usefixtures("clean_registry"),
    pytest.mark.filterwarnings("ignore:selective_scan runs on the slow"),
]

RULE = "backward_euler"
WORDS = [f"--{name}={value}" for name, value in (SMALL | {"epochs": 1, "model.discretization": RULE}).items()]


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    return own_rule.write(tmp_path)


def forget() -> None:
    """As in a new process."""
    DISCRETIZATIONS.pop(RULE, None)


def train(rules: Path, out: Path, *words: str) -> int:
    forget()
    return main(["train", "digits", *WORDS, "--import", str(rules), f"--out={out}", *words])


def test_a_run_from_training_to_predicting(tmp_path: Path, rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert train(rules, out) == 0
    recorded = {"file": "my_rules.py", "sha256": tustin.discretize.RuleFile("", rules.read_bytes()).sha256}
    assert json.loads((out / "summary.json").read_text())["environment"]["rule"] == recorded
    assert tustin.models.describe(out / "best.safetensors")["rule"] == recorded
    assert train(rules, out) == 0
    assert "is complete" in capsys.readouterr().out
    Image.new("L", (8, 8)).save(tmp_path / "zero.png")
    best = out  # a folder is as good as best.safetensors in it
    for words in (
        ["eval", str(best)],
        ["predict", str(tmp_path / "zero.png"), "--checkpoint", str(best)],
    ):
        forget()
        error = refused(capsys, 1, *words)
        assert "needs the rule 'backward_euler' from 'my_rules.py' (SHA-256 " in error
        assert "--import FILE" in error
        assert told(capsys, *words, "--import", rules)["discretization"] == RULE
    forget()
    facts = told(capsys, "info", best)  # which needs no code for it
    assert (facts["discretization"], facts["rule"]) == (RULE, recorded)
    assert RULE not in DISCRETIZATIONS
    assert told(capsys, "info", best, "--import", rules)["scan_flops"][RULE] == facts["flops"]["scan"]


def test_another_file_does_not_continue_or_evaluate(
    tmp_path: Path, rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, other = tmp_path / "run", own_rule.write(tmp_path, "other.py", more="# changed\n")
    assert train(rules, out) == 0
    forget()
    capsys.readouterr()
    words = ["train", "digits", *WORDS, f"--out={out}", "--import"]
    error = refused(capsys, 1, *words, other)
    assert "holds a run with 'backward_euler' from 'my_rules.py' (SHA-256 " in error
    assert "not from 'other.py' (SHA-256 " in error
    (out / "summary.json").unlink()
    assert "not from 'other.py' (SHA-256 " in refused(capsys, 1, *words, other)  # nor from training.pt
    error = refused(capsys, 1, "eval", out / "best.safetensors", "--import", other)
    assert "was trained with 'backward_euler' from 'my_rules.py' (SHA-256 " in error
    with pytest.raises(CheckpointError, match=r"not from 'other\.py'"):
        tustin.load(out / "best.safetensors")
    assert tustin.load(out / "best.safetensors", allow_other_discretization=True).config["discretization"] == RULE


def test_a_checkpoint_runs_nothing(tmp_path: Path, rules: Path) -> None:
    """Not even the file that it names, where it lies beside it."""
    import_rules(rules)
    model: Any = tustin.create_model("vim_nano_patch2_8", depth=1, discretization=RULE)
    tustin.save(model, tmp_path / "a.safetensors")
    forget()
    rules.write_text("raise SystemExit('run')")
    with pytest.raises(CheckpointError, match="if you have this file and trust it, name it with --import FILE"):
        tustin.load(tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match="unknown discretization"):
        tustin.create_model("vim_nano_patch2_8", depth=1, discretization=RULE)


def test_a_study_with_processes_of_its_own(tmp_path: Path, rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "study"
    settings = [f"--{name}={value}" for name, value in SMALL.items() if name != "run.threads"]
    words = [
        "study",
        "digits",
        *settings,
        "--discretizations",
        RULE,
        "--baseline",
        RULE,
        "--out",
        str(out),
        "--epochs=1",
    ]
    assert main([*words, "--seeds", "1", "--import", str(rules)]) == 0
    capsys.readouterr()
    result = json.loads((out / "results" / f"{RULE}-0.json").read_text())
    assert (result["status"], result["environment"]["rule"]["file"]) == ("done", "my_rules.py")
    forget()
    assert "unknown discretization 'backward_euler'" in refused(capsys, 1, *words, "--seeds", "2")
    other = own_rule.write(tmp_path, "other.py", more="# changed\n")
    error = refused(capsys, 1, *words, "--seeds", "2", "--import", other)
    assert "holds a study with 'backward_euler' from 'my_rules.py' (SHA-256 " in error
    forget()
    assert main(["study", "report", str(out)]) == 0  # from results alone


def test_the_process_of_a_benchmark_knows_the_rule(rules: Path) -> None:
    import_rules(rules)
    worker = Worker({})
    try:
        first, _ = worker.ask(first_calls, replace(CELL, backend="reference", discretization=RULE, L=2, batch=1))
    finally:
        worker.close()
    assert first > 0


def test_where_it_stands_does_not_matter(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--import", rules, "discretizations"], ["discretizations", f"--import={rules}"]):
        forget()
        assert told(capsys, *words)["discretizations"][-1]["name"] == RULE


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["doctor", "--import", "x.py"], 2, "--import: 'tustin doctor' takes no rule"),
        (["--import", "x.py"], 2, "--import: 'tustin' takes no rule"),
        (["train", "digits", "--import"], 2, "argument --import: expected the path of a Python file"),
        (["info", "--import="], 2, "argument --import: expected the path of a Python file"),
        (["info", "--import", "no.py"], 1, "no.py: No such file or directory"),
        (["info", "--import", "."], 1, "argument --import: '.' is a folder, expected a file"),
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], words: list[str], code: int, sentence: str) -> None:
    assert sentence in refused(capsys, code, *words)


def test_a_recipe_cannot_name_a_file(tmp_path: Path, rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(f"import: {rules}\n")
    assert "unknown setting 'import'" in refused(capsys, 2, "train", recipe)
    assert RULE not in DISCRETIZATIONS
