"""docs/adding-a-discretization.md works: its patches make backward Euler a built-in rule that the tests accept."""

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.interpreter import needs_triton
from tests.programs import needs_program

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "adding-a-discretization.md"
RULE = "backward_euler"
COMPILER, needs_compiler = needs_program(
    "a rule of one's own in C++", "c++", "g++", "clang++", install="apt install g++"
)
PATCHED = (
    *("src/tustin/discretize/backward_euler.py", "src/tustin/discretize/__init__.py"),
    *("src/tustin/ops/csrc/discretizations.hpp", "src/tustin/ops/csrc/scan.h"),
    *("src/tustin/ops/scan/triton_discretizations.py", "tests/discretize/judge.py"),
)
# The quickest build of one rule: any CPU runs it, and nothing of it is timed.
FLAGS = (
    *("-std=c++17", "-O1", "-fPIC", "-fopenmp", "-Wall", "-Wextra", "-Wno-psabi", "-fvisibility=hidden"),
    *("-ffp-contract=off", "-fno-math-errno", "-DTUSTIN_CHUNK=32", "-DTUSTIN_LEVEL=baseline"),
    *("-DTUSTIN_REGISTER_BYTES=16", "-DTUSTIN_LEVELS(X)=X(baseline)"),
    *(f"-DTUSTIN_DISCRETIZATIONS(X)=X({RULE})", "-DTUSTIN_SCHEDULED(X)="),
)


def patches() -> dict[str, str]:
    """The diffs of the guide by the file that each changes."""
    fences = MarkdownIt("commonmark").parse(GUIDE.read_text(encoding="utf-8"))
    return {t.info.split()[1]: t.content for t in fences if t.type == "fence" and t.info.startswith("diff ")}


def apply(patch: str, file: Path) -> None:
    """Replace what each part of the patch takes away; a patch of nothing but new lines is a new file."""
    parts = [part.splitlines() for part in re.split(r"^@@\n", patch, flags=re.M)]
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    for part in parts:
        old, new = ("".join(f"{line[1:]}\n" for line in part if line[:1] != sign) for sign in "+-")
        assert not text or text.count(old) == 1, f"{file.name} does not have exactly once:\n{old}"
        text = text.replace(old, new) if text else new
    file.write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources and the tests, with everything that the guide says."""
    folder = tmp_path_factory.mktemp("guide")
    for name in ("src", "tests", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.png"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    for name, patch in patches().items():
        apply(patch, folder / name)
    return folder


@pytest.fixture(scope="module")
def library(project: Path) -> Path:
    """The native library, with the new rule as its only one."""
    build = project / "build"
    build.mkdir()
    kernels = sorted(path.stem for path in (project / "src/tustin/ops/csrc").glob("*.cpp"))

    def compile_one(kernel: str) -> str:
        command = [str(COMPILER), *FLAGS, "-c", f"src/tustin/ops/csrc/{kernel}.cpp", "-o", f"build/{kernel}.o"]
        done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return command[-1]

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compile_one, kernels))
    link = [str(COMPILER), "-shared", "-fopenmp", *objects, "-o", "build/_native.so"]
    subprocess.run(link, cwd=project, check=True, timeout=60)
    return build / "_native.so"


def run_tests(project: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Tests of the copy. Without `site`: an editable installation would import the package from here."""
    path = os.pathsep.join([str(project / "src"), *filter(None, sys.path)])
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-S", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *options]
    return subprocess.run(
        command,
        cwd=project,
        env=clean | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=600,
    )


def assert_passed(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert " passed" in done.stdout
    assert " skipped" not in done.stdout


def test_the_guide_names_every_file() -> None:
    assert tuple(patches()) == PATCHED


def test_python_and_the_judge(project: Path) -> None:
    """The facts that the rule declares, measured, and its coefficients and derivatives beside mpmath's."""
    files = ("tests/discretize/test_facts.py", "tests/discretize/test_accuracy.py")
    assert_passed(run_tests(project, *files, "-k", RULE))


@needs_compiler
def test_cpp(project: Path, library: Path) -> None:
    """The fused scan and all its gradients beside the reference; no other rule is in this library."""
    tests = "tests/ops/scan/test_native_accuracy.py", "tests/ops/scan/test_native.py"
    assert_passed(run_tests(project, *tests, "-k", RULE, TUSTIN_NATIVE_LIBRARY=str(library)))


@needs_triton
def test_triton(project: Path) -> None:
    """In the interpreter: the functions beside mpmath's, the scan and its gradients beside the reference."""
    chosen = f"{RULE} and (match_mpmath or every_argument)"
    assert_passed(run_tests(project, "tests/ops/scan/interpreted_triton.py", "-k", chosen, TRITON_INTERPRET="1"))


def test_what_is_left_is_said(project: Path) -> None:
    """All lists are complete; what the guide leaves to the tests to ask for is asked for."""
    done = run_tests(project, "tests/discretize/test_places.py", "-k", "everywhere")
    said = [line.removeprefix("E").strip() for line in done.stdout.splitlines() if line.startswith("E ")]
    files = [line.split(": ")[0] for line in said if RULE in line and line.startswith(("src/", "docs/", "tests/"))]
    assert files == [
        *("src/tustin/models/costs.py", "src/tustin/bench/machine.py"),
        *("docs/models.md", "docs/performance.md", "docs/math.md"),
    ], done.stdout
