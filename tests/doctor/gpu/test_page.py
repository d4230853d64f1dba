"""The tables of docs/gpu.md: made of what was found, and put where the marks are."""

from pathlib import Path

import pytest
import torch

from tests.interpreter import ROOT, needs_triton
from tustin.cli import main

pytestmark = needs_triton


@pytest.fixture
def page(tmp_path: Path) -> Path:
    from tustin.doctor.gpu.page import COUNTED, ESTIMATED

    path = tmp_path / "page.md"
    path.write_text(
        f"before\n{COUNTED.begin}\nold\n{COUNTED.end}\nbetween\n{ESTIMATED.begin}\n{ESTIMATED.end}\nafter\n"
    )
    return path


def test_the_tables_hold_what_was_found(page: Path) -> None:
    """With code of one instruction a loop and one beside them."""
    from tustin.doctor.gpu import cases
    from tustin.doctor.gpu.inspect import Code, Instruction
    from tustin.doctor.gpu.page import NEEDED, write
    from tustin.doctor.gpu.survey import Found

    found = []
    for target in NEEDED:
        for case in cases.cases(("zoh", "bil"), [torch.float32, torch.float16]):
            loops = [None, *range(len(case.passes))]
            code = tuple(Instruction("LDG", "global load", loop) for loop in loops)
            found.append(Found(target, case, Code(77 if target == "sm_80" else 99, 0, 0, 32, code)))
    write(page, found)
    text = page.read_text()
    assert text.startswith("before\n<!-- tustin doctor gpu instructions: begin")
    assert "old" not in text
    assert text.rstrip().endswith("after")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    zoh = next(row for row in rows if row[0] == "zoh")
    # a passage of each of the two loops: 13 chunks and 50 groups of 4 tokens, for 197 tokens of 32 channels' 16 states
    assert zoh[1:7] == ["77, 99", "0.0", "0.0", "1.00", "0.02", "0.00"]
    estimates = [row for row in rows if len(row) == 9]
    assert [row[0] for row in estimates] == ["", "---", "zoh", "bil", "convolution"]
    assert estimates[0][1:3] == ["A100: forward, 64", "A100: backward, 64"]
    assert estimates[-1][3] == "–"
    assert all(cell.split()[1] in ("memory", "issue", "units") for row in estimates[2:4] for cell in row[1:])
    assert "forward 81.8 MB, which memory moves in 40.1 µs and 24.4 µs" in text


def test_the_page_of_the_project_has_the_tables() -> None:
    """Of every rule that the kernels have, without a gap."""
    from tustin.doctor.gpu.page import insist
    from tustin.ops.scan.triton_discretizations import DISCRETIZATIONS

    path = ROOT / "docs" / "gpu.md"
    insist(path)
    text = path.read_text()
    for rule in DISCRETIZATIONS:
        assert text.count("\n| " + rule.replace("_", "\\_") + " |") == 2, rule


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["--gpu-compile", "sm_90"], "--markdown needs sm_80,sm_90 with inputs of float32"),
        (["--gpu-compile", "--dtype", "float16"], "--markdown needs sm_80,sm_90 with inputs of float32"),
        ([], "--markdown works only with --gpu-compile"),
    ],
)
def test_a_page_wants_both_gpus(argv: list[str], told: str, page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *argv, "--markdown", str(page)]) == 2
    assert told in capsys.readouterr().err


def test_a_page_without_marks_is_refused_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "page.md"
    path.write_text("nothing")
    assert main(["doctor", "--gpu-compile", "--markdown", str(path)]) == 1
    assert "must have one line '<!-- tustin doctor gpu instructions: begin" in capsys.readouterr().err
    assert main(["doctor", "--gpu-compile", "--markdown", str(tmp_path / "none.md")]) == 1
    assert "No such file" in capsys.readouterr().err
