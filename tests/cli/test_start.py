"""A command imports only what it needs, so that it starts quickly."""

import subprocess
import sys

import pytest

TORCH = {"torch", "timm", "matplotlib", "rich"}


def run(program: str, without: set[str]) -> subprocess.CompletedProcess[str]:
    """The program, in an interpreter of its own, which fails with the names of those libraries that it has imported."""
    program += f"; import sys; sys.exit(' '.join({without} & set(sys.modules)) or None)"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("argv", "without"),
    [
        (["--help"], TORCH),
        (["--version"], TORCH),
        (["recipes"], TORCH),
        *(([name, "--help"], TORCH) for name in ("discretizations", "doctor", "eval", "info", "predict", "recipes")),
        *(([name, "--help"], TORCH) for name in ("train", "study", "bench")),
        (["discretizatons"], TORCH),
        (["discretizations", "--json"], {"timm", "matplotlib", "torch._dynamo"}),
        (["doctor", "--json"], {"timm", "matplotlib", "torch._dynamo"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_nothing_heavy_is_imported_for_what_does_not_need_it(argv: list[str], without: set[str]) -> None:
    done = run(f"from tustin.cli import main; main({argv})", without)
    assert done.stdout or "error" in done.stderr
    assert done.returncode == 0, done.stderr


def test_importing_the_package_is_quick() -> None:
    done = run("import tustin", TORCH)
    assert done.returncode == 0, done.stderr
