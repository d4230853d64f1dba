"""`benchmarks/onnx_forms.py`: every form computes the scan, and the tables go into a page."""

import json
import runpy
from pathlib import Path

import pytest

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

FILE = Path(__file__).parents[2] / "benchmarks" / "onnx_forms.py"


def test_the_forms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = runpy.run_path(str(FILE))
    page, kept, block = tmp_path / "page.md", tmp_path / "forms.json", program["BLOCK"]
    page.write_text(f"before\n\n{block.begin}\n{block.end}\n\nafter\n", encoding="utf-8")
    # the last chunk is short
    small = "--lengths 10 --chunks 4 --batch-sizes 3 --shape 5 2 --rounds 2 --discretizations mamba"
    program["main"]([*small.split(), "--threads", "1", "--json", str(kept), "--markdown", str(page)])
    files = json.loads(kept.read_text(encoding="utf-8"))["notes"]["files"]
    assert [name.removeprefix("mamba 10 ") for name in files] == [
        "Scan 1",
        "doubling, all 4",
        "doubling, Scan 4",
        "tokens, Scan 4",
        "unrolled 1",
    ]
    assert program["repeated"]([*small.split(), "--json", "x"]) == f"python benchmarks/onnx_forms.py {small}"
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "| doubling, Scan, T 4 |" in text
    assert "mamba, 10 tokens" in capsys.readouterr().out
