"""The wheels of `make dist`, installed and used where there is no compiler: `make wheel`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

DIST = Path(os.environ.get("TUSTIN_DIST", "dist"))
SCAN = """
import torch
from tustin import selective_scan

u = torch.randn(2, 8, 32, requires_grad=True)
A, B, C = -torch.rand(8, 4), torch.randn(2, 4, 32), torch.randn(2, 4, 32)
selective_scan(u, torch.rand(2, 8, 32), A, B, C, discretization="bil", backend={backend!r}).sum().backward()
print(u.grad.isfinite().all().item())
"""

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not DIST.exists(), reason="there are no wheels; `make dist` builds them"),
]


def wheel(tag: str) -> Path:
    found = [path for path in DIST.glob("*.whl") if tag in path.name]
    assert len(found) == 1, f"{tag}: {[path.name for path in found]}"
    return found[0].resolve()


class Environment:
    """A fresh one, whose programs are Python's own: no compiler, no make."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
        kept = ("LANG", "HOME", "SSL_CERT_FILE", "TMPDIR")
        self.variables = {name: os.environ[name] for name in kept if name in os.environ}
        self.variables["PATH"] = str(folder / "venv" / "bin")

    def run(self, program: str, *words: str) -> str:
        command = [str(self.folder / "venv" / "bin" / program), *words]
        done = subprocess.run(
            command, cwd=self.folder, env=self.variables, capture_output=True, text=True, timeout=1800
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout + done.stderr

    def install(self, *what: str) -> None:
        self.run("python", "-m", "pip", "install", "--quiet", *what)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    made = Environment(tmp_path_factory.mktemp("wheel"))
    made.install(f"{wheel(os.uname().machine)}[train]")
    return made


def test_linux(environment: Environment) -> None:
    told = environment.run("tustin", "doctor")
    assert re.search(r"native +yes", told), told
    assert environment.run("python", "-c", SCAN.format(backend="native")).strip() == "True"
    told = environment.run("tustin", "train", "digits", "--epochs", "1", "--out", "run")
    assert (environment.folder / "run" / "best.safetensors").exists(), told


def test_other_systems(environment: Environment) -> None:
    environment.install("--force-reinstall", "--no-deps", str(wheel("none-any")))
    told = environment.run("tustin", "doctor")
    assert re.search(r"native +no", told), told
    assert environment.run("python", "-W", "ignore", "-c", SCAN.format(backend="auto")).strip() == "True"


@pytest.mark.parametrize(("tag", "machine"), [("x86_64", b"\x3e"), ("aarch64", b"\xb7")])
def test_the_library_is_for_the_machine(tag: str, machine: bytes) -> None:
    assert "manylinux2014" in wheel(tag).name  # glibc of 2012, so nearly every Linux
    with zipfile.ZipFile(wheel(tag)) as archive:
        library = archive.read("tustin/ops/_native.so")
        assert not [name for name in archive.namelist() if "gomp" in name or "csrc" in name]
    assert library[:4] == b"\x7fELF"
    assert library[18:19] == machine
    assert b"libgomp.so.1" in library


def test_no_library_where_it_would_not_run() -> None:
    with zipfile.ZipFile(wheel("none-any")) as archive:
        assert not [name for name in archive.namelist() if name.endswith(".so")]
        assert "tustin/py.typed" in archive.namelist()
