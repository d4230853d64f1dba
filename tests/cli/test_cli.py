"""The command line as a user meets it: what it prints, what it refuses, and how it ends."""

import argparse
import json
import math
import os
import subprocess
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest

from tustin import DISCRETIZATIONS, Discretization, __version__, register
from tustin.cli import COMMANDS, main
from tustin.cli.discretizations import facts as facts_of

SCRIPT = str(Path(sysconfig.get_path("scripts")) / "tustin")


def run_script(*argv, **options):
    return subprocess.run([SCRIPT, *argv], capture_output=True, text=True, encoding="utf-8", timeout=120, **options)


def strict_json(text):
    def refuse(constant):
        raise ValueError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def assert_one_error_line(capsys, *words):
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("tustin: error: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    for word in words:
        assert word in err


@pytest.fixture
def two_sample_rule():
    """A rule of a user's own, with two input samples and text that a renderer might take for markup."""

    def coefficients(delta, z):
        weight = delta / 2 / (1 - z / 2)
        return (1 + z / 2) / (1 - z / 2), (weight, weight)

    register(
        Discretization(
            name="my_rule",
            coefficients=coefficients,
            alpha="(1 + z/2) / (1 − z/2)",
            betas=("½Δ / (1 − z/2)", "½Δ/(1 − z/2)"),
            order=2,
            held_order=1,
            exact_equilibrium=True,
            stable=(-math.inf, 0),
            source="[bold]mine[/bold] :star:",
        )
    )
    yield DISCRETIZATIONS["my_rule"]
    del DISCRETIZATIONS["my_rule"]


@pytest.fixture
def breaking(monkeypatch):
    """Make `tustin doctor` raise."""

    def break_with(error):
        def run(args):
            raise error

        monkeypatch.setitem(COMMANDS, "doctor", replace(COMMANDS["doctor"], run=run))

    return break_with


# --- help and usage ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"]])
def test_help_lists_every_command_with_examples(capsys, argv):
    assert main(argv) == 0
    out = " ".join(capsys.readouterr().out.split())
    for command in COMMANDS.values():
        assert f" {command.name} {command.summary} " in out
    for name in ("train", "predict", "study"):
        assert f" tustin {name} " in out[out.index("examples:") :]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_has_examples(capsys, name):
    assert main([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"examples:\n  tustin {name}" in out
    assert "--debug" in out


def test_help_documents_how_json_writes_infinity(capsys):
    assert main(["discretizations", "--help"]) == 0
    assert '"inf" and "-inf"' in capsys.readouterr().out


def test_lists_have_commas_between_their_items():
    """One way to write a list: no option takes several words."""
    commands = [command for top in COMMANDS.values() for command in (top, *top.commands.values())]
    assert len(commands) > len(COMMANDS)
    for command in commands:
        parser = argparse.ArgumentParser()
        command.configure(parser)
        for action in parser._actions:
            assert not action.option_strings or action.nargs in (None, 0, "?"), (command.name, action.option_strings)


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"tustin {__version__}\n"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["discretisation"], ["'discretisation'", "did you mean 'discretizations'", "doctor"]),
        (["--debug", "docter"], ["did you mean 'doctor'"]),
        (["xyzzy"], ["'xyzzy'", "discretizations, doctor"]),
        (["discretizations", "--jsn"], ["--jsn", "--help"]),
        (["--frobnicate"], ["--frobnicate"]),
        (["discretizations", "--js"], ["--js"]),  # an abbreviation might mean another option tomorrow
        (["discretizations", "bill"], ["'bill'", "did you mean 'bil'", "known: mamba, zoh"]),
        (["discretizations", "bil", "zoh"], ["arguments: zoh", "'tustin discretizations --help'"]),
        (["discretizations", "--plot"], ["--plot", "'tustin discretizations --help'"]),
        (["discretizations", "--plot", "picture.gif"], ["'picture.gif'", ".png, .svg, .pdf"]),
        (["discretizations", "--html", "page.txt"], ["'page.txt'", ".html"]),
        (["discretizations", "--plot", "picture"], ["'picture'", ".png, .svg, .pdf"]),
        (["discretizations", "--plot", ""], ["''", ".png, .svg, .pdf"]),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(capsys, argv, words):
    assert main(argv) == 2
    assert_one_error_line(capsys, *words)


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("A has\nshape (2,),\n  expected (D, N)"), ["A has shape (2,), expected (D, N)"]),
        (RuntimeError("backend 'native' cannot be used"), ["backend 'native' cannot be used"]),
        (FileNotFoundError(2, "No such file or directory", "weights.pt"), ["weights.pt: No such file or directory"]),
        (KeyError("lost"), ["KeyError: 'lost'", "--debug"]),
    ],
)
def test_failure_is_one_line_and_exit_code_1(capsys, breaking, error, words):
    breaking(error)
    assert main(["doctor"]) == 1
    assert_one_error_line(capsys, *words)


@pytest.mark.parametrize("argv", [["--debug", "doctor"], ["doctor", "--debug"]])
def test_debug_shows_the_traceback(breaking, argv):
    breaking(ValueError("the cause"))
    with pytest.raises(ValueError, match="the cause"):
        main(argv)


def test_interrupt_ends_quietly_with_130(capsys, breaking):
    breaking(KeyboardInterrupt())
    assert main(["doctor"]) == 130
    assert capsys.readouterr() == ("", "")


# --- tustin discretizations ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 100, 160, 220])
def test_discretizations_table_fits_and_loses_nothing(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["discretizations"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= width
    assert "\x1b" not in out
    assert "…" not in out
    words = set(out.split())
    for discretization in DISCRETIZATIONS.values():
        told = " ".join([discretization.name, discretization.alpha, *discretization.betas, discretization.source])
        assert set(told.split()) <= words, discretization.name
    assert "[−2.785, 0]" in out


def test_discretizations_table_is_one_table_where_there_is_room(capsys, monkeypatch):
    def lines_about_zoh(width):
        monkeypatch.setenv("COLUMNS", str(width))
        assert main(["discretizations"]) == 0
        return [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("zoh ")]

    assert lines_about_zoh(200) == [
        ["zoh", "e^z", "Δ·φ1(z)", "1", "1", "exact", "(−∞,", "0]", "yes", "paper,", "Eq.", "2"]
    ]
    narrow = lines_about_zoh(80)
    assert [line[0] for line in narrow] == ["zoh", "zoh"]
    assert narrow[0][1] == "e^z"


def test_discretizations_json_says_what_the_discretizations_declare(capsys):
    assert main(["discretizations", "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    told = strict_json(out)
    assert told["tustin"] == __version__
    assert [discretization["name"] for discretization in told["discretizations"]] == list(DISCRETIZATIONS)
    for facts in told["discretizations"]:
        facts["held_order"] = float(facts["held_order"])
        facts["stable"] = [float(bound) for bound in facts["stable"]]
        assert facts == facts_of(DISCRETIZATIONS[facts["name"]])


def test_discretizations_shows_the_rules_that_are_named(capsys):
    assert main(["discretizations", "--json", "true_bil,bil,bil"]) == 0
    assert [facts["name"] for facts in strict_json(capsys.readouterr().out)["discretizations"]] == ["true_bil", "bil"]


def test_a_users_discretization_appears(capsys, monkeypatch, tmp_path, two_sample_rule):
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["discretizations"]) == 0
    out = capsys.readouterr().out
    assert "u_{k−1}: ½Δ/(1 − z/2)" in out
    assert two_sample_rule.source in out
    assert main(["discretizations", "--json", "--plot", str(tmp_path / "with mine.svg")]) == 0
    facts = strict_json(capsys.readouterr().out)["discretizations"][-1]
    assert facts["name"] == "my_rule"
    assert facts["samples"] == 2
    assert "my_rule" in (tmp_path / "with mine.svg").read_text(encoding="utf-8")


def test_plot_leaves_the_json_on_stdout_alone(capsys, tmp_path):
    file = tmp_path / "discretizations.png"
    assert main(["discretizations", "--json", "--plot", str(file)]) == 0
    out, err = capsys.readouterr()
    strict_json(out)
    assert err == f"tustin: wrote {file}\n"
    assert file.read_bytes().startswith(b"\x89PNG")


def test_plot_into_a_folder_that_is_not_there(capsys, tmp_path):
    assert main(["discretizations", "--plot", str(tmp_path / "nowhere" / "discretizations.png")]) == 1
    assert_one_error_line(capsys, "discretizations.png", "no folder", "nowhere")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder in which even root cannot write")
def test_plot_into_a_folder_that_cannot_be_written(capsys):
    assert main(["discretizations", "--plot", "/proc/discretizations.png"]) == 1
    assert_one_error_line(capsys, "cannot write '/proc/discretizations.png'")


def test_failed_plot_keeps_the_old_file(capsys, monkeypatch, tmp_path):
    def no_space(discretizations):
        raise OSError(28, "No space left on device")

    file = tmp_path / "discretizations.png"
    file.write_bytes(b"the old picture")
    monkeypatch.setattr("tustin.report.rules_picture.draw", no_space)
    assert main(["discretizations", "--plot", str(file)]) == 1
    assert_one_error_line(capsys, "cannot write", "discretizations.png", "No space left on device")
    assert file.read_bytes() == b"the old picture"
    assert os.listdir(tmp_path) == ["discretizations.png"]


# --- tustin doctor ----------------------------------------------------------------------------------------------------


def test_doctor(capsys):
    assert main(["doctor"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert __version__ in out
    assert "auto picks on cpu: " in out


def test_doctor_json(capsys):
    assert main(["doctor", "--json"]) == 0
    assert strict_json(capsys.readouterr().out)["versions"]["tustin"] == __version__


# --- the installed script ---------------------------------------------------------------------------------------------


def test_script_prints_plain_text_into_a_pipe():
    done = run_script("discretizations", env={**os.environ, "COLUMNS": "80"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert "rk4_raw" in done.stdout


def test_script_exits_with_the_code_and_without_traceback():
    done = run_script("discretize")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1


def test_script_survives_a_closed_pipe():
    env = {**os.environ, "PYTHONUNBUFFERED": ""}  # buffered, the error comes as late as it can
    with subprocess.Popen(
        [SCRIPT, "discretizations"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
    ) as process:
        process.stdout.close()  # what `| head` does, only earlier
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_script_tells_once_that_its_output_cannot_be_written(unbuffered):
    with open("/dev/full", "w") as full:
        command = [SCRIPT, "discretizations", "--json"]
        env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, env=env)
    assert done.returncode == 1
    assert done.stderr == "tustin: error: No space left on device\n"


@pytest.mark.parametrize("option", ["--json", None])
def test_script_prints_where_there_are_no_greek_letters(option):
    done = run_script("discretizations", *filter(None, [option]), env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    if option:  # nothing is lost: JSON can escape
        assert strict_json(done.stdout)["discretizations"][0]["betas"] == ["Δ"]
