"""`tustin study` as a user meets it."""

import io
import json
import shutil

import pytest
from rich.console import Console

import tustin.models
from tests.cli.test_cli import assert_one_error_line, strict_json
from tustin.cli import main
from tustin.report import terminal
from tustin.study import Result, Study, display, local_engine, read_study

from .small import SETTINGS, Here
from .test_runner import UNSTABLE


def words(settings):
    return [f"--{key}={json.dumps(value) if isinstance(value, dict) else value}" for key, value in settings.items()]


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    """Runs are carried out in this process, and the folder of the test is where it works."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local_engine, "LocalEngine", lambda jobs: Here())


def test_a_study_from_start_to_report(tmp_path, capsys):
    command = ["study", "digits", "--discretizations", "zoh,bil", *words(SETTINGS), "--epochs", "1", "--seeds", "1"]
    assert main([*command, "--jobs", "1"]) == 0
    out, err = capsys.readouterr()
    first, *lines = err.splitlines()
    assert (
        first == "digits: 2 discretizations and no_state x 1 seed, 1 at a time, 1 thread each, into runs/study-digits"
    )
    assert lines[0].startswith("1 of 3 runs, about ")
    assert "left: zoh, seed 0: top-1 accuracy " in lines[0]
    assert "left: bil, seed 0: top-1 accuracy " in lines[1]
    assert lines[2].startswith("3 of 3 runs: no_state, seed 0: top-1 accuracy ")
    assert out.splitlines()[-1] == "report: runs/study-digits/report.html"
    assert (tmp_path / "runs/study-digits/report.html").exists()
    assert "Is it better than zoh?" in out
    assert "The state of the scan is worth " in out
    told = tustin.models.describe("runs/study-digits/runs/no_state-0/best.safetensors")
    assert (told["discretization"], told["config"]["state"]) == ("zoh", False)

    assert main([*command, "--json"]) == 0
    told = strict_json(capsys.readouterr().out)
    assert (told["runs"], told["done"], told["failed"], told["missing"]) == (3, 3, 0, 0)
    assert told["report"][0] == "runs/study-digits/report.html"


def test_status(tmp_path, undisturbed, capsys):
    shutil.copytree(undisturbed[0], tmp_path / "study")
    (tmp_path / "study/results/bil-1.json").unlink()
    (tmp_path / "study/results/bil-0.json").write_text("broken")
    assert main(["study", "status", "study"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("digits: 2 of 4 runs done, 2 missing\n")
    assert "bil-0.json' is damaged" in out
    assert main(["study", "status", "study", "--json"]) == 0
    told = strict_json(capsys.readouterr().out)
    assert [(row["discretization"], row["done"]) for row in told["discretizations"]] == [("zoh", 2), ("bil", 0)]
    assert told["discretizations"][1]["mean"] is None
    assert told["discretizations"][1]["begun"] == {"0": 1.0, "1": 1.0}
    assert main(["study", "report", "study"]) == 0
    assert capsys.readouterr().out.endswith("report: study/report.html\n")


def test_failures_are_told(capsys):
    command = [
        "study",
        "digits",
        "--discretizations",
        "rk4_raw",
        "--baseline",
        "rk4_raw",
        "--no-control",
        "--seeds",
        "1",
        "--out",
        "study",
    ]
    assert main([*command, *words(SETTINGS | UNSTABLE)]) == 1
    err = capsys.readouterr().err
    assert "1 of 1 runs, 1 failed: rk4_raw, seed 0: FAILED, " in err
    assert "tustin: error: every run failed, the first because: " in err.splitlines()[-1]
    assert main(["study", "status", "study"]) == 0
    assert "rk4_raw, seed 0: FAILED, " in capsys.readouterr().out


def test_some_failures_have_an_exit_code_of_their_own(capsys):
    command = ["study", "digits", "--discretizations", "zoh,rk4_raw", "--no-control", "--seeds", "1", "--out", "study"]
    assert main([*command, *words(SETTINGS | UNSTABLE)]) == 3
    out, err = capsys.readouterr()
    assert "report: study/report.html" in out
    assert "tustin: error: 1 of 2 runs failed, the first because: " in err.splitlines()[-1]
    assert main(["study", "report", "study"]) == 0


@pytest.mark.parametrize("text", ["", "{", "[]\n", "\xff"])
def test_metrics_that_are_damaged_count_as_nothing_done(tmp_path, undisturbed, capsys, text):
    """They follow from the checkpoint: the run writes them again."""
    shutil.copytree(undisturbed[0], tmp_path / "study")
    (tmp_path / "study/results/bil-1.json").unlink()
    (tmp_path / "study/runs/bil-1/metrics.jsonl").write_text(text, encoding="latin-1")
    assert main(["study", "status", "study", "--json"]) == 0
    assert strict_json(capsys.readouterr().out)["discretizations"][1]["begun"] == {}


def test_a_plan_that_has_not_begun_may_change(tmp_path, capsys):
    command = ["study", "digits", "--discretizations", "zoh", "--seeds", "1", "--out", "study", *words(SETTINGS)]
    assert main([*command, "--data.name", "folder", "--data.path", "nowhere", "--augment.shift", "0"]) == 1
    assert "zoh, seed 0: there is no folder 'nowhere'" in capsys.readouterr().err
    assert main(command) == 0


def test_a_metric_that_the_runs_do_not_have_is_named(capsys):
    command = ["study", "digits", "--discretizations", "zoh", "--seeds", "1", "--out", "study", *words(SETTINGS)]
    assert main([*command, "--metric", "miou"]) == 1
    assert "the runs do not measure 'miou' but " in capsys.readouterr().err


def test_help(capsys):
    for command in (["study", "--help"], ["study", "digits", "--help"], ["study", "status", "--help"]):
        assert main(command) == 0
        assert capsys.readouterr().out.startswith("usage: tustin study RECIPE")


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        ([], 2, ["RECIPE"]),
        (["digts"], 2, ["unknown recipe 'digts' (did you mean 'digits'?)"]),
        (["statu", "x"], 2, ["did you mean 'status'"]),
        (["status"], 2, ["DIR"]),
        (["status", "nowhere"], 1, ["there is no study in 'nowhere'"]),
        (["report", "nowhere"], 1, ["there is no study in 'nowhere'"]),
        (["status", "x", "y"], 2, ["unrecognized arguments: y"]),
        (["nowhere.yaml"], 2, ["nowhere.yaml"]),
        (["digits", "--seed", "3"], 2, ["seed is not a setting of all runs", "--seeds"]),
        (["digits", "--model.discretization=bil"], 2, ["--discretizations"]),
        (["digits", "--run.threads", "2"], 2, ["--threads-per-run"]),
        (["digits", "--epoch", "3"], 2, ["did you mean 'epochs'"]),
        (["digits", "--seeds", "0"], 2, ["--seeds"]),
        (["digits", "--seeds", "100000"], 2, ["--seeds: expected at most 10000 seeds, got 100000"]),
        (
            ["digits", "--seeds", "9" * 5000],
            2,
            ["--seeds: expected a whole number", "got '99"],
        ),
        (
            ["digits", "--jobs", "9" * 5000],
            2,
            ["--jobs: expected a whole number", "got '99"],
        ),
        (["digits", "--seeds", "3,-1"], 1, ["seeds must be at least 0 and less than 2**63, got -1"]),
        (["digits", "--seeds", "a,b"], 2, ["a number of seeds or a list such as 3,5"]),
        (["digits", "--discretizations", "zoh,,bil"], 2, ["values with commas between them"]),
        (["digits", "--discretizations", "zoh,bill"], 1, ["did you mean 'bil'"]),
        (["digits", "--jobs", "-1"], 2, ["--jobs"]),
        (["digits", "--engine", "slurm"], 2, ["'local', 'ray'"]),
    ],
)
def test_mistakes_are_one_line(capsys, argv, code, said):
    assert main(["study", *argv]) == code
    assert_one_error_line(capsys, *said)


def test_display_on_a_terminal(undisturbed):
    """The table, with a run in progress and one that failed."""
    folder = undisturbed[0]
    study = read_study(folder)
    begun = Study(study.plan, study.results[:2], study.plan.runs()[2:])
    table = display.Table()
    table.console = Console(file=io.StringIO(), force_terminal=True, width=100, highlight=False, markup=False)
    with table.of(begun, folder):
        table.ended(Result("zoh", 1, "failed", error="the loss is [nan]"))
        table.refresh()
    shown = table.console.file.getvalue()
    assert "zoh, seed 1: FAILED, the loss is [nan]" in shown
    assert "3 of 4 runs, 1 failed" in shown
    assert "best so far" in shown
    assert "seed 1: 100%" in shown


@pytest.mark.parametrize(
    ("seconds", "text"), [(4, "4 s"), (98, "98 s"), (130, "2 min"), (7300, "2 h 2 min"), (400_000, "4 days 15 h")]
)
def test_duration(seconds, text):
    assert terminal.duration(seconds) == text
