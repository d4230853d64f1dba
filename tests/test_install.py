"""Installing where there is no C++ compiler: one clear sentence, or, when asked for, a package without the kernels."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.programs import needs_program

ROOT = Path(__file__).parents[1]
CMAKE, needs_cmake = needs_program("installing without a compiler", "cmake", install="pip install cmake")


@needs_cmake
@pytest.mark.parametrize("without_native", [False, True])
def test_no_compiler(tmp_path: Path, without_native: bool) -> None:
    environment = os.environ | {"CXX": str(tmp_path / "no-such-compiler")}
    if without_native:
        environment["TUSTIN_NO_NATIVE"] = "1"
    command = [str(CMAKE), "-S", str(ROOT), "-B", str(tmp_path / "build")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    said = " ".join(done.stderr.split())
    if without_native:
        assert done.returncode == 0, said
        assert "installing without the native CPU backend" in done.stdout
    else:
        assert done.returncode != 0
        assert "need a C++17 compiler" in said
        assert "set TUSTIN_NO_NATIVE=1 to install without them" in said
