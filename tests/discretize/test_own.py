"""Rules from a user's file and from installed packages: what runs, what is recorded, what a mistake leaves."""

import hashlib
import os
import pickle
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from tests import own_rule
from tustin import DISCRETIZATIONS
from tustin.discretize import BUILT_IN, import_rules, imported_files, origin_of, recorded_origin
from tustin.discretize.own import GROUP, register_installed

pytestmark = pytest.mark.usefixtures("clean_registry")


def test_a_file_is_run_once_and_its_digest_is_known(tmp_path: Path) -> None:
    path = own_rule.write(tmp_path, more="print('run')\n")
    (rule,) = import_rules(path)
    assert DISCRETIZATIONS["backward_euler"] is rule
    assert import_rules(path) == [rule]
    assert import_rules(own_rule.write(tmp_path, "copy.py", more="print('run')\n")) == [rule]
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert recorded_origin("backward_euler") == {"rule": {"file": "my_rules.py", "sha256": digest}}
    assert recorded_origin("zoh") == {}
    assert not list(tmp_path.rglob("*.pyc"))


def test_another_process_runs_the_bytes_that_were_read(tmp_path: Path) -> None:
    import_rules(path := own_rule.write(tmp_path))
    (file,) = imported_files()
    path.write_text("raise SystemExit('edited meanwhile')")
    del DISCRETIZATIONS["backward_euler"]
    (rule,) = pickle.loads(pickle.dumps(file)).run()
    assert rule.name == "backward_euler"


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("x = 1\nx.y\n", r"my_rules\.py, line 2: AttributeError: 'int' object has no attribute 'y'$"),
        ("x = (\n", r"my_rules\.py, line 1: SyntaxError: '\(' was never closed$"),
        ("import sys\nsys.exit(3)\n", r"my_rules\.py, line 2: SystemExit: 3$"),
        ("x = 1\n", r"my_rules\.py registers no rule: it must call tustin\.register$"),
        (
            own_rule.SOURCE + "from dataclasses import replace\nregister(replace(BACKWARD_EULER, name='x', order=0))\n",
            r"my_rules\.py, line 26: discretization 'x': declares order 0",
        ),
        (
            own_rule.SOURCE.replace('"backward_euler"', '"zoh"'),
            r"my_rules\.py, line 24: a discretization named 'zoh' is already registered$",
        ),
    ],
)
def test_a_mistake_is_a_sentence_with_its_line_and_leaves_nothing(tmp_path: Path, source: str, sentence: str) -> None:
    path = tmp_path / "my_rules.py"
    path.write_text(source, encoding="utf-8")
    before = dict(DISCRETIZATIONS), set(sys.modules)
    with pytest.raises(ValueError, match=sentence):
        import_rules(path)
    assert (DISCRETIZATIONS, set(sys.modules)) == before


def test_only_a_file_is_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is a folder, expected a file"):
        import_rules(tmp_path)
    with pytest.raises(FileNotFoundError):
        import_rules(tmp_path / "none.py")


def test_a_program_may_register_without_a_file() -> None:
    assert all(origin_of(rule.name) is None for rule in BUILT_IN)
    assert origin_of("none") is None


# ── installed packages ───────────────────────────────────────────────────────────────────────────────────────────────


def package(folder: Path, value: str = "euler_rules:BACKWARD_EULER") -> None:
    """What pip leaves behind of a package with an entry point."""
    (folder / "euler_rules.py").write_text(own_rule.SOURCE.replace("register(BACK", "# (BACK"), encoding="utf-8")
    about = folder / "euler_rules-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: euler-rules\nVersion: 1.2\n")
    (about / "entry_points.txt").write_text(f"[{GROUP}]\nbackward_euler = {value}\n")


def run(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment, encoding="utf-8"
    )


def test_the_rule_of_an_installed_package_is_there_by_itself(tmp_path: Path) -> None:
    package(tmp_path)
    code = "import tustin; from tustin.discretize import recorded_origin; print(recorded_origin('backward_euler'))"
    done = run(tmp_path, f"{code}; print(list(tustin.DISCRETIZATIONS)[-1])")
    digest = hashlib.sha256((tmp_path / "euler_rules.py").read_bytes()).hexdigest()
    assert done.stderr == ""
    facts = {"rule": {"file": "euler-rules 1.2, euler_rules", "sha256": digest}}
    assert done.stdout == f"{facts}\nbackward_euler\n"


def test_a_package_that_is_broken_is_told_of_and_harms_nothing() -> None:
    points = [EntryPoint("mine", "math:pi", GROUP), EntryPoint("none", "tustin_has_no_such_module:x", GROUP)]
    before = dict(DISCRETIZATIONS)
    with pytest.warns(UserWarning, match=r"cannot be used") as told:
        register_installed(points)
    assert [str(one.message) for one in told] == [
        "the rule 'mine' of a package cannot be used: TypeError: math:pi is a float, expected a Discretization",
        "the rule 'none' of a package cannot be used: ModuleNotFoundError: No module named 'tustin_has_no_such_module'",
    ]
    assert before == DISCRETIZATIONS
